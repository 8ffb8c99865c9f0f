"""Backups: stores held at one instant, copied, and brought back."""
