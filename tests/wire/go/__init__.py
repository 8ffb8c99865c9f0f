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
_FETCHED_WITHIN_S: Final = 60
_BUILT_WITHIN_S: Final = 110


@functools.cache
def go_client(package: str = ".") -> str:
    """A program of this folder, built; skips the test where the client cannot be fetched."""
    if shutil.which("go") is None:
        pytest.skip("the Go client needs Go (1.25 or newer), and it is not here")
    try:
        fetched = _go("mod", "download", within_s=_FETCHED_WITHIN_S)
    except subprocess.TimeoutExpired:
        pytest.skip(f"Go could not fetch the client within {_FETCHED_WITHIN_S} s")
    if fetched.returncode != 0:
        pytest.skip(f"Go could not fetch the client: {fetched.stderr.strip()[-300:]}")
    folder = tempfile.mkdtemp(prefix="peeklock-tests-go-")
    atexit.register(shutil.rmtree, folder)
    program = f"{folder}/program"
    try:
        built = _go("build", "-o", program, package, within_s=_BUILT_WITHIN_S)
    except subprocess.TimeoutExpired:
        pytest.skip(f"Go could not build the client within {_BUILT_WITHIN_S} s")
    # What was fetched and is no program is our own mistake.
    assert built.returncode == 0, built.stderr
    return program


def _go(*arguments: str, within_s: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["go", *arguments], cwd=_HERE, capture_output=True, text=True, timeout=within_s, check=False
    )
