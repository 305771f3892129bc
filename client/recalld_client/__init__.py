"""The agent's side of recalld."""
