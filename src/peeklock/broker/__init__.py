"""Owns partitions: the only package where deciding meets storing."""
