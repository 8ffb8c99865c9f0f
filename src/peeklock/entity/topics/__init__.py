"""Topics: which subscriptions take a message, and the copies that they get."""
