"""Frames, and the performatives that they carry."""
