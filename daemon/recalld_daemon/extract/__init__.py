"""Extraction without a language model: what a passage states, of what, and of when. Pure functions, run at ingest."""
