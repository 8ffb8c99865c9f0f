"""How a log line is written: an event and its facts as key=value, one line each."""

from typing import Final

# What needs no quotes; everything else is quoted so that a line can always be taken apart again.
_PLAIN: Final = frozenset(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:/@$#+*"
)
# Texts come from the network, directly or not: no line may grow without bound.
_TEXT_LENGTH_MAX: Final = 1_000


def line(event: str, /, **facts: str | int | None) -> str:
    """Write an event with its facts; facts that are None are left out."""
    parts = [event]
    parts.extend(f"{name}={_value(fact)}" for name, fact in facts.items() if fact is not None)
    return " ".join(parts)


def _value(fact: str | int) -> str:
    if isinstance(fact, int):
        return str(fact)
    text = fact[:_TEXT_LENGTH_MAX]
    if text and _PLAIN.issuperset(text):
        return text
    # repr-like escapes keep line breaks and control characters of strangers out of the log.
    escaped = text.encode("unicode_escape").decode("ascii").replace('"', '\\"')
    return f'"{escaped}"'
