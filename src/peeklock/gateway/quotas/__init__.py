"""What connections share, and how much of it each may take."""
