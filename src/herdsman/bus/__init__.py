"""Redis Streams: hints that jobs are there, which may be late, doubled, forged or lost. The database is the truth."""
