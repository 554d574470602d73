"""The control plane: the commands that people and workers give, and the loops that run by themselves."""
