"""How many workers a pool should have: policies, each one a small function over the same observation."""
