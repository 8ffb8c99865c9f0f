"""The version, and the form it tells."""

import peeklock
from peeklock.version import VERSION, describe, is_compiled


def test_the_package_has_the_version() -> None:
    assert peeklock.__version__ == VERSION


def test_the_form_is_the_one_of_the_hot_modules() -> None:
    from peeklock.amqp.values import codec

    assert is_compiled() == (not codec.__file__.endswith(".py"))
    assert describe().splitlines() == [
        f"peeklock {VERSION}",
        f"compiled: {'yes' if is_compiled() else 'no'}",
    ]
