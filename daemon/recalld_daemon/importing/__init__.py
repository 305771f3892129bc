"""`recalld import`: what a user has already, looked at, noted, read and followed."""
