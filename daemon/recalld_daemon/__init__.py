"""The daemon: sockets, sessions and the race in one trio process; models in worker processes beside it.

The map of the rooms is `docs/architecture.md`. Invariant: nothing in this process imports torch.
"""

__version__ = "0.1.0"
