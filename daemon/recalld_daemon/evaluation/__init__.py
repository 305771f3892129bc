"""How good recall is, in numbers with intervals: metrics, paired bootstrap, `recalld eval` on the user's own log."""
