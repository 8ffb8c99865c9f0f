"""`make run` in a fresh clone, and what the ready text says to type, until a message has come."""

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

import pytest

from setup import compiler_problem
from tests.packages import fresh
from tests.packages.fresh import ROOT

# What make and tests leave in a clone, and what nobody would have who has just fetched it.
NOT_CLONED = shutil.ignore_patterns(
    ".*", "build", "dist", "data", "node_modules", "__pycache__", "*.egg-info"
)

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="session", autouse=True)
def _wheelhouse() -> None:
    fresh.fill_wheelhouse()


class Run:
    """One `make run`, and what it says."""

    def __init__(self, clone: Path, **environment: str) -> None:
        self.clone = clone
        self.environment = fresh.shell_environment() | {
            "PEEKLOCK_AMQP_PORT": "0",
            "PEEKLOCK_HTTP_PORT": "0",
        }
        # Make hands its own choices on to those below it.
        for name in ("MAKEFLAGS", "MAKELEVEL", "VIRTUAL_ENV"):
            self.environment.pop(name, None)
        self.environment |= environment
        self.said = ""
        self.process = subprocess.Popen(
            ["make", "run"],
            cwd=clone,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def wait_for(self, text: str) -> str:
        """Give all that was said, once a text is there; a build goes on to speak after the end."""
        assert self.process.stdout is not None
        while text not in self.said:
            line = self.process.stdout.readline()
            assert line, self.said
            self.said += line
        return self.said

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def stop(self) -> int:
        """Ctrl-C; the broker is a child of make. Gives the exit code of make."""
        if self.process.poll() is None:
            task = Path(f"/proc/{self.process.pid}/task/{self.process.pid}")
            for pid in (task / "children").read_text().split():
                os.kill(int(pid), signal.SIGINT)
        return self.process.wait(60)

    def type(self, *commands: str) -> str:
        """Type commands in another terminal."""
        kept = {
            name: value
            for name, value in self.environment.items()
            if not name.startswith("PEEKLOCK_")
        }
        done = subprocess.run(
            ["sh", "-ec", "\n".join(commands)],
            cwd=self.clone,
            env=kept,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr + self.said
        return done.stdout


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    place = tmp_path / "clone of mine"
    shutil.copytree(ROOT, place, ignore=NOT_CLONED)
    return place


def first_message(run: Run) -> None:
    """Do what the ready text says, and find the message."""
    said = run.wait_for(" receive first\n")
    steps = re.search(r"^Next, in another terminal:\n((?:  .*\n)+)", said, re.MULTILINE)
    assert steps is not None
    assert "hello" in run.type(*steps[1].splitlines())


@pytest.mark.skipif(compiler_problem() is not None, reason="there is no C compiler")
def test_from_a_clone_to_a_first_message(
    clone: Path, record_property: Callable[[str, object], None]
) -> None:
    """It serves before anything is compiled; and goes on where compiling fails."""
    failing = shutil.which("false")
    assert failing is not None
    begun = time.monotonic()
    with Run(clone, CC=failing) as run:
        said = run.wait_for("Peeklock is ready")
        # Measured, not judged: this machine does other things beside it.
        record_property("ready_after_s", round(time.monotonic() - begun, 1))
        assert "(plain)" in said
        assert "Serving as plain Python now." in said
        first_message(run)
        record_property("message_after_s", round(time.monotonic() - begun, 1))
        run.wait_for("Compiling failed (build/compile.log says why)")
        assert (clone / "build" / "compile.log").stat().st_size
        assert run.stop() == 0


@pytest.mark.torture
@pytest.mark.skipif(compiler_problem() is not None, reason="there is no C compiler")
def test_the_next_start_is_compiled_and_so_is_the_command(clone: Path) -> None:
    with Run(clone) as first:
        first.wait_for("Peeklock is ready")
        assert "compiled: no" in first.type(".venv/bin/peeklock --version")
        # The build does not end with the broker.
        assert first.stop() == 0
        first.wait_for("The compiled copy is built")
    with Run(clone) as second:
        assert "(compiled)" in second.wait_for("Peeklock is ready")
        first_message(second)
        assert "compiled: yes" in second.type(".venv/bin/peeklock --version")
        # What was edited since is what is run.
        (clone / "src" / "peeklock" / "durations.py").touch()
        assert "compiled: no" in second.type(".venv/bin/peeklock --version")
