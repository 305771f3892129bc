"""Frozen encoders: where their files lie, how they run fastest on this machine, and what their vectors mean."""
