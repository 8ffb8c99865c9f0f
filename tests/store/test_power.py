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

from peeklock.store.embedded import EmbeddedStore
from tests.store.test_crash import PARTITIONS, WRITER, examine, tell

COMPILER = shutil.which("cc")

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or COMPILER is None, reason="needs LD_PRELOAD and a C compiler"
)

CARELESS = """
import lmdb
careful = lmdb.open
lmdb.open = lambda *names, **options: careful(*names, **{**options, "sync": False})
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
    writer: str, layer: Path, tmp_path: Path, seed: int, step: int | None = None
) -> dict[int, int]:
    """Let a writer run for a while, or up to a step of its writing.

    What a power cut would have left of its data lies in `tmp_path / "left"`.
    """
    left = tmp_path / "left"
    left.mkdir()
    image = left / "data.mdb"
    command = [sys.executable, "-c", writer, str(tmp_path / "data"), str(seed)]
    environment = {**os.environ, "LD_PRELOAD": str(layer), "DURABLE_IMAGE": str(image)}
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


@pytest.mark.parametrize("seed", [1, 2])
def test_what_was_answered_was_synced(layer: Path, tmp_path: Path, seed: int) -> None:
    """R-T1: an answer means that the records are on the disk, not in some cache."""
    answered = cut_power(WRITER, layer, tmp_path, seed)
    asyncio.run(examine(EmbeddedStore(tmp_path / "left"), answered))


# The making of the store, and the six moments of one commit; `make torture` tries many more.
FEW = [2, 5, *range(120, 126)]
MANY = [pytest.param(n, marks=pytest.mark.torture) for n in range(1, 401) if n not in FEW]


@pytest.mark.parametrize("step", [*FEW, *MANY])
def test_a_kill_at_any_step_of_a_commit_loses_nothing(
    layer: Path, tmp_path: Path, step: int
) -> None:
    """Before and after each write and each sync, with the power on and off."""
    answered = cut_power(WRITER, layer, tmp_path, 5, step)
    for directory in ("left", "data"):
        asyncio.run(examine(EmbeddedStore(tmp_path / directory), answered))


def test_the_check_has_teeth(layer: Path, tmp_path: Path) -> None:
    """A store that does not sync is caught."""
    answered = cut_power(CARELESS + WRITER, layer, tmp_path, 1)
    with pytest.raises(AssertionError, match="is gone"):
        asyncio.run(examine(EmbeddedStore(tmp_path / "left"), answered))
