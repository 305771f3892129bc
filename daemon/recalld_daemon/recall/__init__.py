"""One recall: from what the conversation is about to at most three snippets, or silence with its reason."""
