"""Claims: messages that an owner takes by name until it settles them."""
