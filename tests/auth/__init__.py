"""Tests of the auth room."""
