"""The routes of the server itself; those of a subject stand with it."""
