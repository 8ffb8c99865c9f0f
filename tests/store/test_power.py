"""A power cut: only what was synced is left, and all that was answered is in it."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from peeklock.store.segments.frames import decode_header
from peeklock.store.store import Corrupt
from tests.store.test_crash import PARTITIONS, WRITER, engine, examine, tell

COMPILER = shutil.which("cc")

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or COMPILER is None, reason="needs LD_PRELOAD and a C compiler"
)

CARELESS_ENGINE = """
import lmdb
careful = lmdb.open
lmdb.open = lambda *names, **options: careful(*names, **{**options, "sync": False})
"""

CARELESS_DISK = """
from peeklock.store.segments.disk import RealDisk
RealDisk.sync = lambda disk, file: None
"""


@pytest.fixture(scope="module")
def layer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The layer that knows what is durable, compiled."""
    library = tmp_path_factory.mktemp("layer") / "durable.so"
    source = Path(__file__).with_name("durable.c")
    command = [COMPILER or "cc", "-O1", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"]
    subprocess.run(command, check=True)
    return library


def cut_power(
    writer: str, layer: Path, tmp_path: Path, seed: int, kind: str, step: int | None = None
) -> dict[int, int]:
    """Let a writer run for a while, or up to a step of its writing.

    What a power cut would have left of its data lies in `tmp_path / "left"`.
    """
    left = tmp_path / "left"
    left.mkdir()
    command = [sys.executable, "-c", writer, str(tmp_path / "data"), str(seed), kind]
    environment = {**os.environ, "LD_PRELOAD": str(layer), "DURABLE_IMAGE": str(left)}
    if step is not None:
        environment["DURABLE_KILL_AT"] = str(step)
    answered = dict.fromkeys(range(PARTITIONS), 1)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        if step is None:
            for _ in range(100):
                tell(process.stdout.readline(), answered)
            process.send_signal(signal.SIGKILL)
        for line in process.stdout:
            tell(line, answered)
    assert process.returncode == -signal.SIGKILL
    return answered


KINDS = pytest.mark.parametrize("kind", ["embedded", "segments"])


@KINDS
@pytest.mark.parametrize("seed", [1, 2])
def test_what_was_answered_was_synced(layer: Path, tmp_path: Path, seed: int, kind: str) -> None:
    """R-T1: an answer means that the records are on the disk, not in some cache."""
    answered = cut_power(WRITER, layer, tmp_path, seed, kind)
    if kind == "segments":
        made = max(int(path.name[-8:]) for path in (tmp_path / "data").glob("segment-*"))
        assert uses(tmp_path / "data") > made, "no segment was used again"
    asyncio.run(examine(engine(kind, tmp_path / "left"), answered))


def uses(directory: Path) -> int:
    """How many uses of segments there were."""
    headers = [decode_header(path.read_bytes()) for path in directory.glob("segment-*")]
    return max(header.number for header in headers if header is not None)


# The making of the store, and the moments of one commit; `make torture` tries many more.
FEW = [2, 5, *range(120, 126)]
MANY = [pytest.param(n, marks=pytest.mark.torture) for n in range(1, 401) if n not in FEW]


@KINDS
@pytest.mark.parametrize("step", [*FEW, *MANY])
def test_a_kill_at_any_step_of_a_commit_loses_nothing(
    layer: Path, tmp_path: Path, step: int, kind: str
) -> None:
    """Before and after each write and each sync, with the power on and off."""
    answered = cut_power(WRITER, layer, tmp_path, 5, kind, step)
    for directory in ("left", "data"):
        asyncio.run(examine(engine(kind, tmp_path / directory), answered))


CARELESS = {"embedded": CARELESS_ENGINE, "segments": CARELESS_DISK}


@KINDS
def test_the_check_has_teeth(layer: Path, tmp_path: Path, kind: str) -> None:
    """A store that does not sync is caught."""
    answered = cut_power(CARELESS[kind] + WRITER, layer, tmp_path, 1, kind)
    # The index of segments may know of chunks that never came to rest.
    gone = r"is gone|not known here|damaged|ends before"
    with pytest.raises((AssertionError, Corrupt), match=gone):
        asyncio.run(examine(engine(kind, tmp_path / "left"), answered))
