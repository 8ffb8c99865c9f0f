"""Runs every check of the source, and tells at the end all that have failed."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent

CHECKS: Mapping[str, Sequence[str]] = {
    "lint": (str(BIN / "ruff"), "check", "."),
    "format": (str(BIN / "ruff"), "format", "--check", "."),
    "types": (str(BIN / "mypy"),),
    "import rules": (str(BIN / "lint-imports"), "--no-logo"),
    "tidiness": (sys.executable, "-m", "pytest", "-q", "tests/architecture"),
}


def failures(checks: Mapping[str, Sequence[str]]) -> list[str]:
    """Run all checks and return the names of those that failed."""
    # The plain form is checked: what is compiled has no source to look at.
    plain = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    plain["PEEKLOCK_EXPECT"] = "plain"
    failed = []
    for name, command in checks.items():
        if subprocess.run(command, cwd=ROOT, env=plain, check=False).returncode != 0:
            failed.append(name)
    return failed


def main() -> None:
    """Run the checks; leave with an error that names those that failed."""
    failed = failures(CHECKS)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
