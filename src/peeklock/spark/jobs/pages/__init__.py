"""Pages for people, made of the tables that jobs write."""
