"""The database: the only part that speaks SQL."""
