"""The real programs in a simulated world: one seed is one order of events with its faults, and can be run again."""
