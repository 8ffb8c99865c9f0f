"""What a run of the bench was asked for; every question gets the same one."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Plan:
    """`quick` shows that everything works; its figures are noise."""

    directory: Path
    quick: bool
    rounds: int
    with_rabbitmq: bool
    # Another build to compare with, for the question that needs one.
    before: Path | None = None
