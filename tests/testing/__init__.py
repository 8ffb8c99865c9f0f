"""Tests of the kit for tests."""
