"""What is about the whole broker: who is connected, backups, and the nodes beside them."""
