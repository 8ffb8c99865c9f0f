"""Tests: a mirror of src, plus wire (real clients), simulation and architecture."""
