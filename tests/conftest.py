"""What all tests share: the form they run in is the one that was asked for."""

import os

import hypothesis
import pytest

from peeklock.version import is_compiled

# A loaded machine must not fail a property for being slow; a failure prints how to repeat it.
# The same examples in each run, so that a change is refused for what it does and not by chance;
# PEEKLOCK_EXPLORE=1 draws others, and `make torture` does.
IS_EXPLORING = bool(os.environ.get("PEEKLOCK_EXPLORE"))
hypothesis.settings.register_profile(
    "peeklock", deadline=None, print_blob=True, derandomize=not IS_EXPLORING
)
hypothesis.settings.load_profile("peeklock")


def pytest_configure() -> None:
    """Stop when the compiled tests would silently run the plain modules, or the other way."""
    expected = os.environ.get("PEEKLOCK_EXPECT")
    if expected is not None and expected != form():
        pytest.exit(f"{expected} modules were asked for, these are {form()}", returncode=4)


def pytest_report_header() -> str:
    """Tell the form at the head of each run."""
    return f"peeklock: {form()}"


def form() -> str:
    """Name the form of the hot modules."""
    return "compiled" if is_compiled() else "plain"
