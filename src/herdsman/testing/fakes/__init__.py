"""Fake services to test against: real HTTP on a loopback port, with every fault that the real ones have shown."""
