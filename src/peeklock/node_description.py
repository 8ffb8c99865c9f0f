"""What a node is told when it is started: who it is, who the others are, who has which store."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import final

VARIABLE = "PEEKLOCK_NODE"
"""The environment variable that tells a process that it is a node, and which."""


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class NodeDescription:
    """One node of a cluster on one machine."""

    index: int
    count: int
    # Where the sockets are by which the processes of the cluster talk.
    directory: str
    stores: int
    # The listening sockets that were handed over, by the name of the port: descriptors.
    listening: dict[str, list[int]]

    @property
    def coordination_path(self) -> str:
        """Where the parent process listens."""
        return str(Path(self.directory) / "coordination")

    def node_path(self, index: int) -> str:
        """Where a node listens for the others."""
        return str(Path(self.directory) / f"node-{index}")

    def environment(self) -> dict[str, str]:
        """Return what a process must be started with to be this node."""
        return {**os.environ, VARIABLE: json.dumps(asdict(self))}

    @classmethod
    def read(cls, text: str) -> NodeDescription:
        """Return what was written."""
        return cls(**json.loads(text))
