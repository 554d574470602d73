"""The runtime on a GPU machine: a supervisor that never runs user code, and a process that does."""
