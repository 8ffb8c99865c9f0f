"""Node and the official JavaScript client, installed where the tests of it are."""

import shutil
import subprocess
import threading
from pathlib import Path
from typing import Final

JAVASCRIPT: Final = Path(__file__).parent / "js"
_INSTALLING = threading.Lock()


def node() -> str:
    """Node with the client installed; missing packages are installed from the lock file."""
    found = shutil.which("node")
    assert found is not None, "the JavaScript tests need Node 20 or newer"
    with _INSTALLING:
        if not (JAVASCRIPT / "node_modules" / "@azure" / "service-bus").is_dir():
            subprocess.run(["npm", "ci", "--no-audit", "--no-fund"], cwd=JAVASCRIPT, check=True)
    return found
