"""How fast, how small, how soon: one file per question, other brokers measured beside."""
