"""What another node asks of the partitions that live here."""

from __future__ import annotations

import asyncio
from typing import Any, Final, Protocol, final

from peeklock.broker.worker.partition_door import PartitionDoor
from peeklock.broker.worker.refusing import refusal_reply
from peeklock.cluster.values import NO_ORIGIN, read_command, write_reply
from peeklock.entity.commands import (
    RECEIVE_AND_DELETE,
    AcceptSession,
    CloseReceiver,
    Command,
    Count,
    OpenReceiver,
    ReceiveDeferred,
    Requeue,
)
from peeklock.entity.deliveries import Delivery
from peeklock.entity.refusals import UNAVAILABLE, Refusal
from peeklock.entity.replies import (
    NO_LANE,
    Counted,
    Delivered,
    Found,
    Nobody,
    ReceiverClosed,
    Reply,
)
from peeklock.store.store import StoreError

_UNKNOWN: Final = Refusal(UNAVAILABLE, "This node does not know the partition yet. Try again.")


class ReplyChannel(Protocol):
    """What is needed of the connection to the node that asks."""

    def send_reply(self, value: list[Any]) -> None:
        """Send a reply; it leaves at the end of this turn."""
        ...

    def notify_node(self, name: str, arguments: list[Any]) -> None:
        """Say something that wants no answer."""
        ...


@final
class RemoteOrigin:
    """Stands here for an origin of another node."""

    __slots__ = ("_channel", "_number", "asked", "doors", "is_lost", "lane")

    def __init__(self, number: int, channel: ReplyChannel) -> None:
        self._number: Final[int] = number
        self._channel: Final[ReplyChannel] = channel
        # The partitions where it is a receiver, or waits for a session.
        self.doors: dict[PartitionDoor, bool] = {}
        # The partition that it asked last, and the lane that it receives from.
        self.asked: PartitionDoor | None = None
        self.lane: int = NO_LANE
        self.is_lost: bool = False  # its node is gone

    def replied(self, reply: Reply) -> None:
        """Send the reply on; what was taken for a node that is gone goes back."""
        if self.is_lost:
            if isinstance(reply, Delivered) and reply.mode == RECEIVE_AND_DELETE:
                self._put_back(self.lane, reply.deliveries)
            elif isinstance(reply, Found) and reply.removed_from != NO_LANE:
                self._put_back(reply.removed_from, reply.deliveries)
            return
        if isinstance(reply, ReceiverClosed):
            self.doors.clear()
        self._channel.send_reply(write_reply(reply, self._number))

    def _put_back(self, lane: int, deliveries: list[Delivery]) -> None:
        if self.asked is not None and lane != NO_LANE:
            self.asked.submit(Requeue(lane, deliveries))

    def flush(self) -> None:
        """It leaves with the others of this turn."""


@final
class HostedPartition:
    """A partition that the other node knows by a number."""

    __slots__ = ("door", "handle", "is_told_available")

    def __init__(self, handle: int, door: PartitionDoor) -> None:
        self.handle: Final[int] = handle
        self.door: Final[PartitionDoor] = door
        self.is_told_available: bool = False


@final
class PartitionHost:
    """Carries out what one other node asks."""

    __slots__ = ("_channel", "_counting", "_hosted", "_nobody", "_origins", "_unknown")

    def __init__(self, channel: ReplyChannel) -> None:
        self._channel: Final[ReplyChannel] = channel
        # Partitions that the other node knows already, by what it called them.
        self._unknown: dict[int, tuple[str, str, int, int]] = {}
        self._hosted: dict[int, HostedPartition] = {}
        self._origins: dict[int, RemoteOrigin] = {}
        self._nobody: Final[Nobody] = Nobody()
        self._counting: Final[set[asyncio.Task[None]]] = set()

    def expect(self, handle: int, namespace: str, path: str, incarnation: int, index: int) -> None:
        """The other node means a partition that this one does not know yet."""
        self._unknown[handle] = (namespace.lower(), path.lower(), incarnation, index)

    def expected(self, namespace: str, path: str, incarnation: int) -> list[tuple[int, int]]:
        """Tell which partitions of an entity are expected: their numbers and indexes."""
        found = [
            (handle, each[3])
            for handle, each in self._unknown.items()
            if each[:3] == (namespace.lower(), path.lower(), incarnation)
        ]
        for handle, _ in found:
            del self._unknown[handle]
        return found

    def know(self, handle: int, door: PartitionDoor) -> None:
        """The other node means this partition by the number."""
        hosted = HostedPartition(handle, door)
        self._hosted[handle] = hosted
        if door.is_open:
            self._tell_opened(hosted)
        elif door.can_be_asked:
            hosted.is_told_available = True
            self._channel.notify_node("partition-available", [handle])

    def forget(self, handle: int) -> None:
        """The other node does not ask for it any more."""
        self._hosted.pop(handle, None)
        self._unknown.pop(handle, None)

    def opened(self, door: PartitionDoor) -> None:
        """A partition has opened, maybe anew: receivers may come back."""
        for hosted in self._hosted.values():
            if hosted.door is door:
                self._tell_opened(hosted)

    def door_of(self, handle: int) -> PartitionDoor | None:
        """The partition that a number means."""
        hosted = self._hosted.get(handle)
        return None if hosted is None else hosted.door

    def forget_origins(self, numbers: list[int]) -> None:
        """These ask nothing any more."""
        for number in numbers:
            self._origins.pop(number, None)

    def heard(self, value: list[Any]) -> None:
        """Carry out a command."""
        command = read_command(value[1], self._origin_of)
        hosted = self._hosted.get(value[0])
        if hosted is None:
            self._refuse(command)
            return
        door = hosted.door
        if isinstance(command, (OpenReceiver, AcceptSession, CloseReceiver)):
            origin = command.origin
            assert isinstance(origin, RemoteOrigin)
            if isinstance(command, CloseReceiver):
                origin.doors.pop(door, None)
            else:
                origin.doors[door] = True
                origin.lane = command.lane
                origin.asked = door
        elif isinstance(command, ReceiveDeferred):
            fetching = command.origin
            assert isinstance(fetching, RemoteOrigin)
            fetching.asked = door
        if hosted.is_told_available and not door.is_available:
            hosted.is_told_available = False
            self._channel.notify_node("partition-unavailable", [hosted.handle])
        if isinstance(command, Count) and door.is_asleep:
            # What was never written to is not opened for this: there may be thousands of them.
            task = asyncio.get_running_loop().create_task(_count(door, command))
            self._counting.add(task)
            task.add_done_callback(self._counting.discard)
            return
        door.submit(command)

    def lost(self) -> None:
        """The other node is gone, and with it the connections of its clients."""
        for origin in self._origins.values():
            origin.is_lost = True
            for door in list(origin.doors):
                door.submit(CloseReceiver(origin, True))
        self._origins = {}
        self._hosted = {}

    def _tell_opened(self, hosted: HostedPartition) -> None:
        hosted.is_told_available = True
        self._channel.notify_node("partition-opened", [hosted.handle])

    def _origin_of(self, number: int) -> Any:
        if number == NO_ORIGIN:
            return self._nobody
        origin = self._origins.get(number)
        if origin is None:
            origin = self._origins[number] = RemoteOrigin(number, self._channel)
        return origin

    def _refuse(self, command: Command) -> None:
        reply = refusal_reply(command, _UNKNOWN)
        if reply is not None:
            origin: Any = reply.origin
            origin.replied(reply)


async def _count(door: PartitionDoor, command: Count) -> None:
    """Count a partition that sleeps; one with a journal is opened for it."""
    try:
        is_empty = not await door.has_journal()
    except StoreError:
        is_empty = False  # its worker has the better words
    if is_empty and door.is_asleep:
        command.origin.replied(Counted(command.origin, command.tag, 0, 0, 0, 0, 0, 0))
    else:
        door.submit(command)
