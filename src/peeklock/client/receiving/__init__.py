"""What a receiver is made of."""
