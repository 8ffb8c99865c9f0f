"""Names of very many stages, looked at in several decisions."""

from __future__ import annotations

from typing import final

from peeklock.entity.stages.commands import DropStages, FindPublished


@final
class Drop:
    """Stages that are given up by a prefix: there may be very many others."""

    __slots__ = ("command", "count", "names")

    def __init__(self, command: DropStages, names: list[str]) -> None:
        self.command: DropStages = command
        self.names: list[str] = names  # of all stages, those that were not looked at yet
        self.count: int = 0  # of messages that are gone


@final
class StageSearch:
    """Stages that are looked for among what writers have published last. A writer that publishes
    after it was looked at has published after the question."""

    __slots__ = ("_prefix", "_wanted", "command", "found", "writers")

    def __init__(self, command: FindPublished, writers: list[str]) -> None:
        self.command: FindPublished = command
        self.writers: list[str] = writers  # that were not looked at yet
        self.found: set[str] = set()
        self._prefix: str | None = command.prefix
        self._wanted: set[str] = set(command.stages)

    def look_at(self, stages: list[str]) -> None:
        """Take those that are looked for."""
        prefix = self._prefix
        if prefix is None:
            self.found.update([name for name in stages if name in self._wanted])
        else:
            self.found.update([name for name in stages if name.startswith(prefix)])
