"""Jobs as people start them: a command in a process of its own, and what it tells them."""

import os
import re
import subprocess
import sys
from dataclasses import dataclass

from tests.spark.environments import BRIEF

# Java itself tells of options that it was started with.
_BY_JAVA = re.compile(r"NOTE: Picked up |WARNING: Using incubator modules")


@dataclass(frozen=True)
class Told:
    """How a command ended, and what it wrote: lines of progress and errors, and tables."""

    code: int
    lines: list[str]
    output: str


def run_command(*arguments: str) -> Told:
    """Run `peeklock pipeline` by no activated environment."""
    unactivated = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}
    done = subprocess.run(
        [sys.executable, "-m", "peeklock", "pipeline", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=unactivated | BRIEF | {"PATH": "/usr/local/bin:/usr/bin:/bin", "COLUMNS": "200"},
    )
    lines = [line for line in done.stderr.splitlines() if not _BY_JAVA.match(line)]
    return Told(done.returncode, lines, done.stdout)
