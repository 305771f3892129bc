"""The wire between agents and recalld: typed messages, their encoding and limits, and where the sockets lie.

Invariant: this package knows neither the client nor the daemon. `protocol/README.md` is the specification;
this package is its Python form, and `tests/protocol` holds the two together.
"""
