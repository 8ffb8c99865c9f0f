"""Builds Peeklock; everything but the compiled modules is said in pyproject.toml."""

from setuptools import setup

setup()
