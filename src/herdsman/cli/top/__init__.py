"""`herdsman top`: the whole herd in a terminal, and keys to look closer and to act."""
