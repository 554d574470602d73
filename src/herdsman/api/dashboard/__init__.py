"""The dashboard: one page and its parts, served from memory. It holds no data; that comes from the API."""
