"""Which Peeklock this is, and in which form it runs."""

from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from pathlib import Path
from typing import Final

VERSION: Final = "0.1.0"

# One module of the compiled group speaks for all of them: they are built together or not at all.
_WITNESS: Final = "peeklock.amqp.values.codec"
# Written by setup.py into an installation that was to be compiled and could not be.
_REASON: Final = Path(__file__).with_name("plain.txt")


def is_compiled() -> bool:
    """Return whether the hot modules are C; finding the witness does not load it."""
    spec = find_spec(_WITNESS)
    return spec is not None and (spec.origin or "").endswith(tuple(EXTENSION_SUFFIXES))


def describe() -> str:
    """Return the lines that `peeklock --version` prints."""
    return f"peeklock {VERSION}\ncompiled: {_form()}"


def _form() -> str:
    if is_compiled():
        return "yes"
    return f"no, because {_REASON.read_text().strip()}" if _REASON.exists() else "no"
