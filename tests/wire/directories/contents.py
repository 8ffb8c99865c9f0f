"""What is in the data directories that earlier versions wrote: the names that both sides use."""

import tarfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

FOLDER: Final = Path(__file__).parent
# The first version whose directories must open for good.
FIRST: Final = "047d928"
# Some of them rest in the store that is taken away before it ends.
DESTINATIONS: Final = [f"away-{number}" for number in range(4)]
STORES: Final = ("--stores", "2")

FAR: Final = datetime(2099, 1, 1, tzinfo=UTC)
PROPERTIES: Final[dict[str, Any]] = {
    "text": "tea",
    "whole": 1 << 40,
    "part": 2.5,
    "yes": True,
}
LARGE: Final = b"0123456789abcdef" * 12_000
BIG: Final = "amount > 100"
DOUBLED: Final = "SET amount = amount * 2"
KEYS: Final = [f"key-{number}" for number in range(8)]


def archive(version: str) -> Path:
    """Where the directory of a version is kept."""
    return FOLDER / f"{version}.tar.xz"


def unpack(version: str, place: Path) -> Path:
    """Unpack the directory of a version, and return it."""
    with tarfile.open(archive(version)) as packed:
        packed.extractall(place, filter="data")
    return place / "data"
