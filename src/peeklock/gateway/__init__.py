"""The doors: thin adapters between wire words and domain words."""
