"""Who asks a partition in tests: a text, which tests compare with what replies name."""

from typing import Any

from peeklock.entity.replies import Origin


def by(name: Any) -> Origin:
    """The origin of that name. A partition never calls an origin, so that a text can be one."""
    origin: Origin = name
    return origin
