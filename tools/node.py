"""Installs the JavaScript client for the wire tests, and Node itself by apt where it is missing."""

import shutil
import subprocess
import sys
from pathlib import Path

from tools.environment import ROOT, apt_install

PACKAGES = ROOT / "tests" / "wire" / "js"


def main(stamp: str) -> None:
    """Install exactly what the lock file names, then leave a stamp that tells make when."""
    if shutil.which("npm") is None and not apt_install("nodejs", "npm"):
        sys.exit("the wire tests need Node with npm, and apt-get could not bring it")
    subprocess.run(["npm", "ci", "--no-audit", "--no-fund"], cwd=PACKAGES, check=True)
    Path(stamp).touch()


if __name__ == "__main__":
    main(sys.argv[1])
