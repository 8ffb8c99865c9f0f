"""The parent's part: it keeps the catalog, lets one node change it at a time, and tells the others.

A change is answered when it rests and when every node that lives has applied it: whoever asked for
a queue through one node finds it at once through any other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, Final, final

from peeklock.cluster.channel import Channel
from peeklock.entity.definition import QUEUE, SUBSCRIPTION, TOPIC
from peeklock.store.store import Catalog, Fenced, StoreError

# What nodes keep in memory and must hear of; all else in the catalog is read when it is needed.
_TOLD: Final = frozenset({QUEUE, TOPIC, SUBSCRIPTION})

_LOG: Final = logging.getLogger("peeklock.cluster")


@final
class ClusterCoordinator:
    """The catalog of a cluster, and who is in it."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self.members: dict[int, Member] = {}
        # Held by the node that changes descriptions; its number is in every write.
        self._changing = asyncio.Lock()
        self._turn = 0
        self._holder: Member | None = None
        self._writing: asyncio.Task[None] | None = None
        self._quiet = asyncio.Event()
        # Told with the number of a node that serves, or that is gone.
        self.on_serving: Callable[[int], None] = _nobody_listens
        self.on_lost: Callable[[int], None] = _nobody_listens

    def side(self) -> Member:
        """Make what hears one node."""
        return Member(self)

    async def load(self) -> list[tuple[str, str, str, str]]:
        """Read all of the catalog."""
        return await self._catalog.load()

    async def begin(self, member: Member) -> int:
        """Wait for the right to change descriptions; answers the number of the turn."""
        await self._changing.acquire()
        if member.channel is None or not member.channel.is_open:
            self._changing.release()
            raise Fenced("the node is gone")
        self._turn += 1
        self._holder = member
        return self._turn

    def end(self, member: Member, turn: int) -> None:
        """Give the right back; a write that is under way comes to its end before."""
        if self._holder is member and turn == self._turn:
            self._holder = None
            if self._writing is None:
                self._changing.release()
            else:
                self._writing.add_done_callback(lambda _: self._changing.release())

    async def write(
        self,
        member: Member,
        turn: int,
        removed: Sequence[tuple[str, str, str]],
        entries: Sequence[tuple[str, str, str, str]],
    ) -> None:
        """Let a change rest, then let every other node apply it."""
        told_removed = [each for each in removed if each[1] in _TOLD]
        told_entries = [each for each in entries if each[1] in _TOLD]
        is_told = bool(told_removed or told_entries)
        if is_told and (self._holder is not member or turn != self._turn):
            # It was taken for lost, and somebody else has changed what it knows.
            raise Fenced("another node changes descriptions now")
        if not is_told:
            await self._catalog.replace(removed, entries)
            return

        async def rest_and_tell() -> None:
            await self._catalog.replace(removed, entries)
            await self._tell(member, told_removed, told_entries)

        # Also when its node goes meanwhile: what rests must be known to all.
        self._writing = asyncio.get_running_loop().create_task(rest_and_tell())
        try:
            await asyncio.shield(self._writing)
        finally:
            if self._writing.done():
                self._writing = None

    async def _tell(
        self,
        member: Member,
        removed: Sequence[tuple[str, str, str]],
        entries: Sequence[tuple[str, str, str, str]],
    ) -> None:
        others = [each for each in self.members.values() if each is not member and each.is_watching]
        done = await asyncio.gather(
            *(each.apply(removed, entries) for each in others), return_exceptions=True
        )
        for each, result in zip(others, done, strict=True):
            if isinstance(result, BaseException):
                # It reads the catalog when it comes back; until then it must not go on with what
                # is no longer true.
                _LOG.error("change-not-applied node=%d error=%r", each.index, str(result))
                each.dismiss()

    def joined(self, member: Member) -> None:
        """A node has said who it is."""
        self.members[member.index] = member

    def left(self, member: Member) -> None:
        """A node is gone, with what it held."""
        self.end(member, self._turn)
        if self.members.get(member.index) is member:
            del self.members[member.index]
            self._look_whether_quiet()
            self.on_lost(member.index)

    async def wait_quiet(self, member: Member) -> None:
        """Wait until every node that lives has let its clients go: until then all partitions are
        needed, because messages may be put back."""
        member.is_quiet = True
        self._look_whether_quiet()
        await self._quiet.wait()

    def _look_whether_quiet(self) -> None:
        if all(each.is_quiet for each in self.members.values()):
            self._quiet.set()
        else:
            self._quiet.clear()


@final
class Member:
    """One node, as the coordinator hears it."""

    def __init__(self, coordinator: ClusterCoordinator) -> None:
        self._coordinator = coordinator
        self.index = -1
        self.channel: Channel | None = None
        # Whether it has read the catalog, so that it must hear of changes.
        self.is_watching = False
        # Whether it has let its clients go and is about to end.
        self.is_quiet = False

    async def apply(
        self,
        removed: Sequence[tuple[str, str, str]],
        entries: Sequence[tuple[str, str, str, str]],
    ) -> None:
        """Let the node apply a change; done when it has."""
        assert self.channel is not None
        await self.channel.request("apply", removed, entries)

    def dismiss(self) -> None:
        """End the connection: whoever looks after the node ends it, too."""
        if self.channel is not None:
            self.channel.close()

    # ---- Side

    def heard(self, _kind: int, _value: list[Any]) -> None:
        """Partitions are not asked through the parent."""
        raise AssertionError("the parent has no partitions")

    def noticed(self, channel: Channel, name: str, arguments: list[Any]) -> None:
        """The node says who it is, that it serves, or that a change is over."""
        if name == "join":
            self.index = arguments[0]
            self.channel = channel
            channel.name = f"node {self.index}"
            # Opening stores takes as long as it takes, and may hold up everything else.
            channel.is_patient = True
            self._coordinator.joined(self)
        elif name == "serving":
            channel.is_patient = False
            self._coordinator.on_serving(self.index)
        elif name == "end-change":
            self._coordinator.end(self, arguments[0])
        else:
            raise ValueError(f"the parent does not know '{name}'")

    async def asked(self, _channel: Channel, name: str, arguments: list[Any]) -> Any:
        """The node reads the catalog or writes to it."""
        if name == "load":
            # From here on it hears of every change: none happens before the answer is on its way.
            entries = await self._coordinator.load()
            self.is_watching = True
            return entries
        if name == "quiet":
            await self._coordinator.wait_quiet(self)
            return None
        if name == "begin-change":
            return await self._coordinator.begin(self)
        if name == "write":
            turn, removed, entries = arguments
            await self._coordinator.write(
                self, turn, [_three(each) for each in removed], [_four(each) for each in entries]
            )
            return None
        raise StoreError(f"the parent does not know '{name}'")

    def lost(self, _channel: Channel) -> None:
        """The node is gone."""
        self._coordinator.left(self)


def _three(value: Sequence[str]) -> tuple[str, str, str]:
    return value[0], value[1], value[2]


def _four(value: Sequence[str]) -> tuple[str, str, str, str]:
    return value[0], value[1], value[2], value[3]


def _nobody_listens(_index: int) -> None:
    """Nobody is told yet."""
