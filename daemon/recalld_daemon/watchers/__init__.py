"""Which files count, and what happens to them: tree (pure rules and scans) and follow (watchfiles on trio)."""
