"""`make demo` in short: it ends well, and its page has everything."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


# It starts a broker and Spark, and lets locks run out.
@pytest.mark.torture
@pytest.mark.timeout(600)
def test_the_demonstration_writes_its_page(tmp_path: Path) -> None:
    """R-D2 to R-D5, all at once: captured, rolled up, looked through, replayed, audited."""
    page = tmp_path / "demo.html"
    environment = {**os.environ, "PEEKLOCK_DEMO_SECONDS": "5", "PEEKLOCK_DEMO_PAGE": str(page)}
    done = subprocess.run(
        [sys.executable, "-m", "tools.demo"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    log = tmp_path / "run" / "jobs.log"
    assert done.returncode == 0, done.stdout + done.stderr + log.read_text()
    written = page.read_text()
    for word in ("Audit", "Traffic", "NoAddress", "Skew", "Advice", "dead letters replayed"):
        assert word in written
    assert "StockServiceError: no answer from &lt;address&gt; after &lt;n&gt; ms" in written
