"""Partitions that live on another node, asked over one connection to it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Final, Protocol, final

from peeklock.broker.partition_factory import RemotePlace
from peeklock.broker.worker.late_replies import LateReplies
from peeklock.broker.worker.partition_door import PartitionDoor
from peeklock.broker.worker.refusing import brings_messages, refusal_reply
from peeklock.cluster.asking_origins import AskingOrigins
from peeklock.cluster.values import write_command
from peeklock.entity.blueprint import Blueprint
from peeklock.entity.commands import (
    Command,
    Count,
    Grant,
    Requeue,
)
from peeklock.entity.refusals import BUSY, UNAVAILABLE, Refusal
from peeklock.entity.replies import (
    Ready,
    Refused,
    Reply,
)
from peeklock.store.store import Away, JournalPage

NODE_LOST: Final = (
    "The node of this partition was lost; whether this was done is in doubt. Try again."
)
CONGESTED: Final = "The node that has this partition has much to do. Try again later."
AWAY: Final = "The node that has this partition is out of reach. Try again later."

# How long the end of a broker waits for messages that go back to another node.
_BACK_S_MAX: Final = 5.0

_LOG: Final = logging.getLogger("peeklock.cluster")


class NodeChannel(Protocol):
    """What is needed of the connection to another node."""

    @property
    def is_congested(self) -> bool:
        """Whether the other node reads too slowly for messages to follow."""
        ...

    def send_command(self, value: list[Any]) -> None:
        """Send [handle, command]."""
        ...

    def notify_node(self, name: str, arguments: list[Any]) -> None:
        """Say something that wants no answer."""
        ...

    async def request_node(self, name: str, arguments: list[Any]) -> Any:
        """Ask and wait for the answer."""
        ...


@final
class RemoteNode:
    """Another node, as those see it who ask its partitions."""

    __slots__ = ("_channel", "_doors", "_last_handle", "_late_replies", "_origins", "name")

    def __init__(self, name: str) -> None:
        self.name: Final[str] = name
        self._channel: NodeChannel | None = None
        self._origins: Final[AskingOrigins] = AskingOrigins()
        self._doors: dict[int, RemotePartition] = {}
        self._last_handle: int = 0
        self._late_replies: Final[LateReplies] = LateReplies(f"node={name}")

    @property
    def is_connected(self) -> bool:
        """Whether commands go through."""
        return self._channel is not None

    @property
    def is_congested(self) -> bool:
        """Whether messages should not follow: the node reads too slowly."""
        return self._channel is not None and self._channel.is_congested

    # ---- coming and going

    def add(self, door: RemotePartition) -> int:
        """Know a partition of this node; answers the number that stands for it."""
        self._last_handle += 1
        self._doors[self._last_handle] = door
        if self._channel is not None:
            self._introduce(self._last_handle, door)
        return self._last_handle

    def remove(self, handle: int) -> None:
        """Forget a partition: its entity is gone."""
        if self._doors.pop(handle, None) is not None and self._channel is not None:
            self._channel.notify_node("forget-partition", [handle])

    def connected(self, channel: NodeChannel) -> None:
        """The connection is there: the node learns whom it may be asked for."""
        self._channel = channel
        for handle, door in list(self._doors.items()):
            self._introduce(handle, door)

    def lost(self) -> None:
        """The connection is gone: nobody knows what became of what was asked."""
        if self._channel is None:
            return
        self._channel = None
        for reply in self._origins.let_go(Refusal(UNAVAILABLE, NODE_LOST)):
            self.answer(reply)
        for door in list(self._doors.values()):
            door.node_lost()

    def _introduce(self, handle: int, door: RemotePartition) -> None:
        assert self._channel is not None
        place = door.place
        arguments = [handle, place.id.namespace, place.path, place.incarnation, place.id.index]
        self._channel.notify_node("know-partition", arguments)

    # ---- asking

    def ask(self, handle: int, command: Command) -> None:
        """Send a command; whoever calls has looked whether the node is connected."""
        channel = self._channel
        assert channel is not None
        forgotten = self._origins.note(command)
        channel.send_command([handle, write_command(command, self._origins.number_of)])
        if forgotten:
            channel.notify_node("forget-origins", forgotten)

    async def request(self, name: str, arguments: list[Any]) -> Any:
        """Ask for something that is no command; Away where the node is out of reach."""
        if self._channel is None:
            raise Away(f"{self.name} is out of reach")
        return await self._channel.request_node(name, arguments)

    def replied(self, value: list[Any]) -> None:
        """A reply has come."""
        reply = self._origins.replied(value)
        if reply is not None:
            self.answer(reply)

    def unavailable(self, handle: int) -> None:
        """A partition is out of reach of its own node."""
        door = self._doors.get(handle)
        if door is not None:
            door.node_lost()

    def available(self, handle: int) -> None:
        """A partition may be asked; it is opened then."""
        door = self._doors.get(handle)
        if door is not None:
            door.node_available()

    def opened(self, handle: int) -> None:
        """A partition has opened: it may be asked."""
        door = self._doors.get(handle)
        if door is not None:
            door.node_opened()

    def answer(self, reply: Reply) -> None:
        """Hand out a reply with the others of this turn."""
        self._late_replies.add(reply)


_NO_REFUSAL: Final = Refusal(UNAVAILABLE, AWAY)


@final
class RemotePartition(PartitionDoor):
    """The way to a partition that another node owns."""

    __slots__ = (
        "_all_back",
        "_handle",
        "_is_available",
        "_is_open",
        "_node",
        "_on_unsent",
        "_requeues",
        "_unsure",
        "place",
    )

    def __init__(self, place: RemotePlace, node: RemoteNode) -> None:
        super().__init__(place.id)
        self.place: Final[RemotePlace] = place
        self._node: Final[RemoteNode] = node
        self._on_unsent: Callable[[Command], bool] | None = None
        self._is_available: bool = False
        self._is_open: bool = False
        # Messages that nobody else has any more: under way to the node, and those that it must be
        # asked for again.
        self._requeues: dict[RequeueWitness, Requeue] = {}
        self._unsure: list[Requeue] = []
        self._all_back: asyncio.Event | None = None
        self._handle: int = node.add(self)

    def submit(self, command: Command) -> None:
        """Ask the node, or say at once that it is out of reach."""
        node = self._node
        if not node.is_connected:
            self._refuse(command, _NO_REFUSAL)
            return
        if node.is_congested and brings_messages(command):
            self._refuse(command, Refusal(BUSY, CONGESTED))
            return
        if isinstance(command, Requeue):
            self._requeue(command)
            return
        if isinstance(command, Grant) and not command.drain:
            budget = command.budget
            # It is counted here: what is granted beyond it would be sent all the same.
            if budget is not None and budget.is_exhausted:
                node.answer(Ready(command.origin))
                return
        node.ask(self._handle, command)

    def _refuse(self, command: Command, refusal: Refusal) -> None:
        if isinstance(command, Requeue):
            self._unsure.append(command)
            return
        if self._on_unsent is not None and self._on_unsent(command):
            return
        reply = refusal_reply(command, refusal)
        if reply is not None:
            self._node.answer(reply)

    def _requeue(self, command: Requeue) -> None:
        """Put messages back that were never sent. Nobody is answered for that, so a count that is
        asked behind it tells that it rests."""
        witness = RequeueWitness(self)
        self._requeues[witness] = command
        self._node.ask(self._handle, command)
        self._node.ask(self._handle, Count(witness, 0, command.lane))

    def requeued(self, witness: RequeueWitness, is_done: bool) -> None:
        """The messages of a requeue are back; or nobody knows, and they are put back again."""
        command = self._requeues.pop(witness, None)
        if command is not None and not is_done:
            self._unsure.append(Requeue(command.lane, command.deliveries, True))
        if self._all_back is not None and not self._requeues:
            self._all_back.set()

    def node_lost(self) -> None:
        """The node is out of reach, or the partition is for the node itself."""
        self._is_available = False
        self._is_open = False

    def node_available(self) -> None:
        """The node would open the partition when asked."""
        self._is_available = True
        self._put_back()

    def node_opened(self) -> None:
        """The node has opened the partition, maybe anew."""
        self._is_available = True
        self._is_open = True
        self._put_back()
        if self.on_opened is not None:
            self.on_opened(self)

    def _put_back(self) -> None:
        """Ask again for the requeues of which nobody knows what became."""
        unsure = self._unsure
        self._unsure = []
        for command in unsure:
            self.submit(command)

    # ---- what only the node itself can do

    def configure(self, blueprint: Blueprint) -> None:
        """The node hears of it from the catalog."""

    def set_on_unsent(self, on_unsent: Callable[[Command], bool]) -> None:
        """Say who finds another place for what was never sent to the node."""
        self._on_unsent = on_unsent

    def trim_soon(self) -> None:
        """The node looks after its journals."""

    @property
    def is_open(self) -> bool:
        """Whether the node has said that it is open."""
        return self._is_open

    @property
    def is_asleep(self) -> bool:
        """Nobody knows that here: the node looks before it opens anything."""
        return False

    def depths(self) -> Iterable[tuple[int, list[int]]]:
        """The node tells its own figures."""
        return ()

    @property
    def memory_bytes(self) -> int:
        """It takes none here."""
        return 0

    @property
    def has_written(self) -> bool:
        """Not here."""
        return False

    async def journal(self, after: int, limit_bytes: int) -> JournalPage:
        """Raw chunks of what is stored, from the node."""
        first, following, chunks = await self._node.request(
            "journal", [self._handle, after, limit_bytes]
        )
        return JournalPage(first, following, chunks)

    @property
    def is_available(self) -> bool:
        """Whether the node is connected and has not said otherwise."""
        return self._is_available

    @property
    def can_be_asked(self) -> bool:
        """Whether the node is connected."""
        return self._node.is_connected

    def store_lost(self) -> None:
        """It is another node's store."""

    def store_back(self) -> None:
        """It is another node's store."""

    async def close(self) -> None:
        """The entity is gone, or this broker ends: what was put back must rest before."""
        if self._requeues and self._node.is_connected:
            all_back = asyncio.Event()
            self._all_back = all_back
            with suppress(TimeoutError):
                await asyncio.wait_for(all_back.wait(), _BACK_S_MAX)
        for command in (*self._requeues.values(), *self._unsure):
            _LOG.error(
                "requeue-lost partition=%s messages=%d", self.id.key, len(command.deliveries)
            )
        self._node.remove(self._handle)


@final
class RequeueWitness:
    """The origin of the count behind a requeue."""

    __slots__ = ("_door",)

    def __init__(self, door: RemotePartition) -> None:
        self._door: RemotePartition = door

    def replied(self, reply: Any) -> None:
        """The count is told: what was asked before it rests."""
        self._door.requeued(self, not isinstance(reply, Refused))

    def flush(self) -> None:
        """Nothing is kept back."""
