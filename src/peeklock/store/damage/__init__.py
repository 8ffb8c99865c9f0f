"""A damaged store, read without its engine: what is lost, and written anew without it."""
