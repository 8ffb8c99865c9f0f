"""What the crash tests share."""

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Name the mark by which these tests are chosen."""
    config.addinivalue_line("markers", "crash: the broker is killed while it works")
