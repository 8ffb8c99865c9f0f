"""The segment store: a log in files that never grow, and an index of it that may lag."""
