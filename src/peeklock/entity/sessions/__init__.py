"""Message sessions: who holds which, their names and their state."""
