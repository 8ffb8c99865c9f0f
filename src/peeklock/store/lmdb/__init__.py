"""A store of LMDB alone."""
