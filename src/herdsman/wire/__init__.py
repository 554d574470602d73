"""What is said over HTTP, as models that the server and its clients share."""
