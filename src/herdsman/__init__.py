"""Runs GPU jobs to completion on a fleet that it grows, heals and shrinks by itself."""

__version__ = "0.1.0"
