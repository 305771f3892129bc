"""How each kind of file is told and read: one module per kind, `kinds` the table of them all."""
