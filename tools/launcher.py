"""The command .venv/bin/peeklock: compiled where a compiled copy is there and up to date.

`tools/environment.py` writes it there with the interpreter's path and the repository's. What was
edited since the copy was built is served as it stands, in plain Python.
"""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def choose() -> None:
    """Let this process, and those that it starts, find the compiled copy first."""
    copy = ROOT / "build" / "compiled"
    stamp = copy / ".stamp"
    if os.environ.get("PEEKLOCK_PURE", "0") not in ("", "0") or not stamp.exists():
        return
    built_at = stamp.stat().st_mtime
    sources = [ROOT / "setup.py", *(ROOT / "src").rglob("*.py")]
    if any(source.stat().st_mtime > built_at for source in sources):
        return
    sys.path.insert(0, str(copy))
    further = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = str(copy) + (os.pathsep + further if further else "")


if __name__ == "__main__":
    choose()
    from peeklock.cli.main import main

    main()
