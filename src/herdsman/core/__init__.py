"""The pure part: what a job, a worker, a pool and a lease are, and what may follow what."""
