"""How jobs run on external services, and how their results are never lost."""
