"""Who may do what: SAS tokens, authorization rules, rights, claims of a connection (pure)."""
