"""Owns partitions: the only room where deciding meets storing."""
