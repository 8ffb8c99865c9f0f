"""The official Go client: fetched by Go into its own cache, built from source."""

import atexit
import functools
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

import pytest

_HERE: Final = Path(__file__).parent
_BUILT_WITHIN_S: Final = 110


@functools.cache
def go_client() -> str:
    """The program of this folder, built; skips the test where that is impossible."""
    if shutil.which("go") is None:
        pytest.skip("the Go client needs Go (1.25 or newer), and it is not here")
    folder = tempfile.mkdtemp(prefix="peeklock-tests-go-")
    atexit.register(shutil.rmtree, folder)
    program = f"{folder}/doors"
    try:
        done = subprocess.run(
            ["go", "build", "-o", program, "."],
            cwd=_HERE,
            capture_output=True,
            text=True,
            timeout=_BUILT_WITHIN_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        pytest.skip(f"Go could not build the client within {_BUILT_WITHIN_S} s")
    if done.returncode != 0:
        pytest.skip(f"Go could not build the client: {done.stderr.strip()[-300:]}")
    return program
