"""The commands that a person types: one file for each group."""
