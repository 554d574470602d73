"""What our tests, and the tests of those who build on us, stand on: private servers for now."""
