"""The HTTP API: parse, ask, answer."""
