"""`.venv/bin/peeklock` runs the compiled copy as long as that is of today's sources."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from setup import ROOT


def clone(directory: Path) -> Path:
    """As much of a clone as the launcher looks at."""
    for folder in ("tools", "src/peeklock", "build/compiled"):
        (directory / folder).mkdir(parents=True)
    shutil.copy(ROOT / "tools" / "launcher.py", directory / "tools")
    for path in ("setup.py", "src/peeklock/one.py"):
        (directory / path).touch()
        os.utime(directory / path, (1_000, 1_000))
    return directory


def choice(directory: Path, **environment: str) -> tuple[str, str]:
    """What is looked in first, here and in processes that are started."""
    program = (
        f"import os, sys; sys.path.insert(0, {str(directory / 'tools')!r}); import launcher; "
        "del sys.path[0]; launcher.choose(); "
        "print(sys.path[0]); print(os.environ.get('PYTHONPATH', ''))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PATH": os.environ["PATH"], **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    first, second = done.stdout.splitlines()
    return first, second


def test_the_compiled_copy_is_taken_while_it_is_new_enough(tmp_path: Path) -> None:
    directory = clone(tmp_path)
    copy, stamp = str(directory / "build" / "compiled"), directory / "build/compiled/.stamp"
    # Not built, or not to its end.
    assert choice(directory)[0] != copy
    stamp.touch()
    os.utime(stamp, (2_000, 2_000))
    assert choice(directory) == (copy, copy)
    assert choice(directory, PYTHONPATH="mine") == (copy, f"{copy}{os.pathsep}mine")
    assert choice(directory, PEEKLOCK_PURE="1")[0] != copy
    # What was edited since is what is run.
    os.utime(directory / "src/peeklock/one.py", (3_000, 3_000))
    assert choice(directory)[0] != copy
