"""Redis Streams: hints that jobs are queued, which may be late, duplicated, forged or lost. The database is the truth."""
