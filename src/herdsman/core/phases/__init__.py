"""The phases of a decision, in order. Each sees the world as the earlier ones leave it."""
