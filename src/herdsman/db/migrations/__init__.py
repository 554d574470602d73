"""The way from an empty database to the schema of today, one step per change."""
