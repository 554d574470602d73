"""Real servers that a test starts for itself and that end with it: PostgreSQL, MariaDB and Redis."""
