"""Chooses what the corpus keeps: of all inputs, found and kept, the short ones that together reach
every step from line to line that any of them reaches.

    python -m tests.fuzz.keep TARGET...

An input whose name is not a checksum was put there by somebody, and stays.
"""

import hashlib
import re
import sys
from pathlib import Path
from types import FrameType
from typing import Any

from tests.fuzz.targets import CORPUS, TARGETS, Target

FOUND = Path(__file__).parents[2] / "build" / "fuzz"
SOURCE = str(Path(__file__).parents[2] / "src")
MADE_BY_MACHINE = re.compile(r"[0-9a-f]{40}")

Step = tuple[str, int, int]


def main(name: str) -> None:
    """Bring the corpus of one target up to date."""
    kept = CORPUS / name
    kept.mkdir(parents=True, exist_ok=True)
    stays = [path.read_bytes() for path in kept.iterdir() if not is_made(path)]
    paths = [*filter(is_made, kept.iterdir()), *(FOUND / name).glob("*")]
    found = {path.read_bytes() for path in paths}
    reached: set[Step] = set()
    for data in stays:
        reached |= steps_of(TARGETS[name], data)
    chosen: list[bytes] = []
    for data in sorted(found, key=lambda data: (len(data), data)):
        new = steps_of(TARGETS[name], data) - reached
        if new:
            reached |= new
            chosen.append(data)
    for path in filter(is_made, list(kept.iterdir())):
        path.unlink()
    for data in chosen:
        (kept / hashlib.sha1(data).hexdigest()).write_bytes(data)
    size = sum(map(len, chosen))
    sys.stdout.write(f"{name}: {len(chosen)} of {len(found)} inputs, {size:,} bytes\n")


def is_made(path: Path) -> bool:
    """Tell whether the fuzzer named the input."""
    return MADE_BY_MACHINE.fullmatch(path.name) is not None


def steps_of(target: Target, data: bytes) -> set[Step]:
    """Which lines of ours follow which when an input is tried."""
    reached: set[Step] = set()

    def see(frame: FrameType, event: str, _argument: Any) -> Any:
        if not frame.f_code.co_filename.startswith(SOURCE):
            return None
        before = 0
        file = frame.f_code.co_filename

        def see_line(frame: FrameType, event: str, _argument: Any) -> Any:
            nonlocal before
            if event == "line":
                reached.add((file, before, frame.f_lineno))
                before = frame.f_lineno
            return see_line

        return see_line

    sys.settrace(see)
    try:
        target(data)
    finally:
        sys.settrace(None)
    return reached


if __name__ == "__main__":
    for each in sys.argv[1:] or TARGETS:
        main(each)
