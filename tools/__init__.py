"""What the Makefile calls when a line is not enough."""
