"""How the one database is opened, described, guarded and spoken to."""
