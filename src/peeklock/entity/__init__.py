"""What a queue means: pure decisions; time and randomness come in as arguments."""
