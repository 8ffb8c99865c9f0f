"""What a sender is made of."""
