"""Pressure tests: each abuses a listening broker while others use it as they always do."""
