"""Streams and database held together: what is queued is announced, what has ended is settled, what is lost is repeated."""
