"""A broker that will be killed."""

import os
import secrets
import subprocess
from pathlib import Path
from typing import Final

from tests.wire.broker_process import BrokerProcess

# Short, so that trimming goes on while the broker is killed.
RETENTION_MS: Final = 500


class Victim(BrokerProcess):
    """A broker with a journal that is trimmed early."""

    def __init__(self, folder: Path, config: Path, *, stores: int = 1, store: str = "") -> None:
        super().__init__(data=folder / "data", config=config, log=folder / "broker.log")
        self.stores = stores
        self.store = store

    def command(self) -> list[str]:
        return [
            *super().command(),
            *("--journal-retention-ms", str(RETENTION_MS)),
            *("--journal-retention-bytes", "0"),
            *("--stores", str(self.stores)),
            *(("--store", self.store) if self.store else ()),
        ]

    def stumble(self, within_s: float) -> None:
        """Start it and kill it before it is ready, perhaps while it reads its journal."""
        with self.log.open("ab") as log:
            process = subprocess.Popen(self.command(), stdout=log, stderr=log)
        try:
            process.wait(within_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def chosen_seed() -> int:
    return int(os.environ.get("PEEKLOCK_SEED") or secrets.randbits(32))


def chosen_number(name: str, default: int) -> int:
    """How long a run is, where the environment says so."""
    return int(os.environ.get(name) or default)
