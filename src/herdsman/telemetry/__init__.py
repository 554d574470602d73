"""What the programs say about themselves."""
