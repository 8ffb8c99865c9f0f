"""The authorization matrix: every operation, every right, every protocol."""
