"""The pretend world: what would have happened."""
