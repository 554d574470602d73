"""`herdsman top`: the whole fleet in a terminal, and keys to look closer and to act."""
