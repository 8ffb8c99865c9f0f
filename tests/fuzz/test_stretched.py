"""Long inputs of one thing again and again: four times as much takes about four times as long."""

import time
from collections.abc import Callable

import pytest

from tests.fuzz import engine
from tests.fuzz.targets import TARGETS
from tests.gateway.http.admin.admin_harness import entry, queue, rule

HEARTBEAT = b"\0\0\0\x08\x02\0\0\0"
DATA = b"\x00\x53\x75\xa0\x01x"
CHUNKED = b"\0POST /q HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
PAIR = (
    "<KeyValueOfstringanyType><Key>k{}</Key><Value i:type='d:int'>5</Value>"
    "</KeyValueOfstringanyType>"
)
# Where four times as much takes sixteen times as long, something is done for each pair of things.
RATIO_MAX = 10.0
# Below this it is the measure that is measured.
SECONDS_MIN = 0.001


def mapped(code: int, kind: int, count: int) -> bytes:
    """A section with a map."""
    items = b"".join(bytes((kind, 6)) + b"k%05d\x54\x01" % i for i in range(count))
    size = (len(items) + 4).to_bytes(4, "big")
    return bytes((0, 0x53, code, 0xD1)) + size + (2 * count).to_bytes(4, "big") + items


def pairs(count: int) -> bytes:
    """A rule with that many properties."""
    listed = "".join(PAIR.format(at) for at in range(count // 8))
    within = f"<Filter i:type='CorrelationFilter'><Properties>{listed}</Properties></Filter>"
    return entry(rule(within)).encode()


def headers(count: int) -> bytes:
    """A request with that many headers."""
    lines = b"".join(b"h%d: 1\r\n" % at for at in range(count))
    return b"\0POST /q/messages HTTP/1.1\r\nHost: h\r\n" + lines + b"\r\n"


STRETCHED: dict[str, tuple[str, Callable[[int], bytes]]] = {
    "bodies": ("sections", lambda count: DATA * count),
    "properties": ("sections", lambda count: mapped(0x74, 0xA1, count)),
    "annotations": ("sections", lambda count: mapped(0x72, 0xA3, count)),
    "late annotations": ("sections", lambda count: DATA + mapped(0x72, 0xA3, count)),
    "records": ("records", lambda count: b"\x01\x00\x01" * count),
    "percent signs": ("sas", lambda count: b"x\n" + b"%25" * count),
    "segments": ("sas", lambda count: b"x\n" + b"/a" * count),
    "elements": ("atom", lambda count: entry(queue("<a/>" * count)).encode()),
    "pairs": ("atom", pairs),
    "commas": ("configuration", lambda count: b'{"a": [' + b"1," * count + b"]}"),
    "open texts": ("configuration", lambda count: b'"\\' * count),
    "headers": ("rest", headers),
    "chunks": ("rest", lambda count: CHUNKED + b"1\r\nx\r\n" * count),
    "heartbeats": ("engine_server", lambda count: b"\0\0" + engine.BY_CLIENT + HEARTBEAT * count),
    "bytes": ("engine_server", lambda count: b"\1\0" + engine.BY_CLIENT + HEARTBEAT * count),
}


@pytest.mark.parametrize("name", STRETCHED)
def test_four_times_as_much_takes_four_times_as_long(name: str) -> None:
    target, make = STRETCHED[name]
    short, long = (seconds_for(target, make(count)) for count in (1000, 4000))
    assert long / max(short, SECONDS_MIN) < RATIO_MAX, f"{short:.4f} s became {long:.4f} s"


def seconds_for(name: str, data: bytes) -> float:
    """The least of a few: whatever else the machine does only adds to it."""
    return min(_timed(name, data) for _ in range(4))


def _timed(name: str, data: bytes) -> float:
    begun = time.thread_time()
    TARGETS[name](data)
    return time.thread_time() - begun
