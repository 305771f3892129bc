"""Learned fusion: what is known of a candidate as numbers, a small forest that orders them, and how it is fitted."""
