"""Partitions are opened many at a time: a broker that starts opens all of them."""

from __future__ import annotations

import asyncio
from typing import TypeAlias, final

from peeklock.store.postgres.commits import OwnedEntry
from peeklock.store.postgres.connection import DatabaseSession
from peeklock.store.postgres.statements import OPEN
from peeklock.store.store import Fenced, StoreError, Unavailable, WentBack

_Asked: TypeAlias = "tuple[str, int | None, asyncio.Future[OwnedEntry]]"


@final
class Openings:
    """Puts epochs in force, and sees that no partition has less than what was acknowledged."""

    def __init__(self, session: DatabaseSession, witness: dict[str, tuple[int, int]]) -> None:
        self._session = session
        self._witness = witness
        self._waiting: list[_Asked] = []
        self._task: asyncio.Task[None] | None = None

    async def open(self, name: str, epoch: int | None) -> OwnedEntry:
        """Fence older owners durably."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[OwnedEntry] = loop.create_future()
        self._waiting.append((name, epoch, answer))
        if self._task is None or self._task.done():
            self._task = loop.create_task(self._run())
        return await answer

    async def finish(self) -> None:
        """Wait until all that was asked is answered."""
        while self._task is not None and not self._task.done():
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        while self._waiting:
            batch: dict[str, _Asked] = {}
            later: list[_Asked] = []
            for asked in self._waiting:
                if asked[0] in batch:
                    later.append(asked)
                else:
                    batch[asked[0]] = asked
            self._waiting = later
            try:
                await self._open(batch)
            except StoreError as error:
                _refuse(batch, error)
            except BaseException as error:
                _refuse(batch, Unavailable(f"the opening failed: {error!r}"))
                raise

    async def _open(self, batch: dict[str, _Asked]) -> None:
        epochs = [epoch for _, epoch, _ in batch.values()]
        for row in await self._session.fetch(OPEN, list(batch), epochs):
            name, epoch, answer = batch[row["name"]]
            if answer.done():
                continue
            if row["is_refused"]:
                text = f"{name} is owned with epoch {row['epoch']}, not {epoch}"
                answer.set_exception(Fenced(text))
                continue
            entry = OwnedEntry.of(name, row)
            backwards = self._why_backwards(entry)
            if backwards:
                answer.set_exception(WentBack(backwards))
            else:
                answer.set_result(entry)

    def _why_backwards(self, entry: OwnedEntry) -> str:
        epoch, end = self._witness.get(entry.name, (0, 0))
        if entry.epoch >= epoch and entry.end >= end:
            return ""
        return (
            f"the database went back: it has {entry.name} up to position {entry.end} under epoch "
            f"{entry.epoch}, and up to {end} was acknowledged under epoch {epoch}. A standby that "
            "was not synchronous was promoted, or an older copy restored. Bring back the database "
            "that has it all, or restart the broker to go on without what is lost"
        )


def _refuse(batch: dict[str, _Asked], error: StoreError) -> None:
    for _, _, answer in batch.values():
        if not answer.done():
            # One for each who is told: an error remembers where it was raised.
            answer.set_exception(type(error)(str(error)))
