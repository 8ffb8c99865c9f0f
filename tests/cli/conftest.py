"""The contexts of whoever runs the tests are theirs."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("CONTEXT", "CONNECTION_STRING", "HTTP_PORT", "AMQP_PORT"):
        monkeypatch.delenv(f"PEEKLOCK_{name}", raising=False)
