"""What an input costs: calls and bytes, both bounded by a multiple of its length."""

import sys
import tracemalloc
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

# What every input may cost, however short, and what each byte may cost. What has rules in it is
# read by Lark, which calls a lot.
CALLS: Final = (5_000, 50)
CALLS_WITH_RULES: Final = (20_000, 200)
BYTES: Final = (1 << 20, 1_000)
_WITH_RULES: Final = ("rules", "atom", "configuration")


def calls_of(target: Callable[[bytes], str], data: bytes) -> int:
    """Count the calls that an input leads to, those of C among them; compiled ones stay unseen."""
    count = 0

    def see(_frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal count
        if event in ("call", "c_call"):
            count += 1

    before = sys.getprofile()
    sys.setprofile(see)
    try:
        target(data)
    finally:
        sys.setprofile(before)
    return count


def bytes_of(target: Callable[[bytes], str], data: bytes) -> int:
    """Measure the memory that an input takes at most at any moment."""
    tracemalloc.start()
    try:
        target(data)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def check_calls(name: str, target: Callable[[bytes], str], data: bytes, watched: int = 1) -> None:
    """Refuse an input that makes us do too much; where it is watched there are more calls."""
    least, each = CALLS_WITH_RULES if name in _WITH_RULES else CALLS
    calls = calls_of(target, data)
    calls_max = watched * (least + each * len(data))
    assert calls <= calls_max, f"{calls:,} calls for {len(data):,} bytes"


def check(name: str, target: Callable[[bytes], str], data: bytes) -> None:
    """Refuse an input that costs too much; what is made once for all was made before."""
    target(data)
    check_calls(name, target, data)
    least, each = BYTES
    taken = bytes_of(target, data)
    said = f"{taken:,} bytes of memory for an input of {len(data):,}"
    assert taken <= least + each * len(data), said
