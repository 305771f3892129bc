"""Programs that play an agent: `recalld demo`, and what `recalld replay` shares with it. They know only the client."""
