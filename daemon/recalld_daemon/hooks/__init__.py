"""Hosts' hooks: short-lived processes and HTTP requests that tell what an agent does and take what comes to mind.

A hook speaks its host's own JSON over a raw Unix stream (`listener`), which the desk of this room (`hook_desk`) puts
into the protocol's words by the client's pure translations. HTTP comes by a small process of its own (`front`).
Invariant: a hook is answered by bytes to print or by nothing, and never waits longer than `hook_wait_seconds`.
"""
