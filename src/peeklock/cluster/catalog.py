"""The catalog as a node has it: kept by the parent process, changed by one node at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import final

from peeklock.cluster.channel import Channel
from peeklock.store.store import Catalog

NO_TURN = 0


@final
class ClusterCatalog(Catalog):
    """Reads and writes through the parent process."""

    def __init__(self, channel: Channel, applying: asyncio.Lock) -> None:
        """`applying` is held while this node applies what another one has changed."""
        self._channel = channel
        self.changing = ChangeTurn(channel, applying)

    async def load(self) -> list[tuple[str, str, str, str]]:
        """All of it; from here on this node hears of every change."""
        found = await self._channel.request("load")
        return [(namespace, kind, path, text) for namespace, kind, path, text in found]

    async def replace(
        self,
        removed: Sequence[tuple[str, str, str]],
        entries: Sequence[tuple[str, str, str, str]],
    ) -> None:
        """Remove some and save others, all or none."""
        await self._channel.request("write", self.changing.turn, list(removed), list(entries))

    async def close(self) -> None:
        """The parent closes it."""


@final
class ChangeTurn:
    """The right to change descriptions, which one node of the cluster has at a time."""

    def __init__(self, channel: Channel, applying: asyncio.Lock) -> None:
        self.turn = NO_TURN
        self._channel = channel
        self._applying = applying
        self._here = asyncio.Lock()

    async def __aenter__(self) -> None:
        """Wait for it: first among those of this node, then among the nodes."""
        await self._here.acquire()
        asked = asyncio.ensure_future(self._channel.request("begin-change"))
        try:
            self.turn = await asyncio.shield(asked)
            async with self._applying:
                pass  # what was changed before this turn is known here
        except BaseException:
            # Whoever does not wait any more gets the turn all the same, and must give it back.
            asked.add_done_callback(self._give_back)
            self.turn = NO_TURN
            self._here.release()
            raise

    def _give_back(self, asked: asyncio.Future[int]) -> None:
        if not asked.cancelled() and asked.exception() is None:
            self._channel.notify("end-change", asked.result())

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Give it back."""
        self._channel.notify("end-change", self.turn)
        self.turn = NO_TURN
        self._here.release()
