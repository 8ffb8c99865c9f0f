"""One node of a cluster: its connections to the parent and to the other nodes."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Final, final

from peeklock.broker.broker import Broker
from peeklock.broker.entities import Queue, Topic
from peeklock.broker.partition_factory import RemotePlace
from peeklock.broker.worker.partition_door import PartitionDoor
from peeklock.cluster.catalog import ChangeTurn, ClusterCatalog
from peeklock.cluster.channel import COMMAND, REPLY, Channel, connect, serve
from peeklock.cluster.partition_host import PartitionHost
from peeklock.cluster.plan import plan
from peeklock.cluster.remote_partition import RemoteNode, RemotePartition
from peeklock.cluster.stores import ClusterStores
from peeklock.node_description import NodeDescription
from peeklock.store.store import Away, PartitionId, StoreError, Unavailable
from peeklock.store.stores import Stores, store_names

# How long a node that cannot be connected to is left in peace.
_RETRY_S: Final = 0.05
# How long a start waits for the others: one that cannot start must not keep the rest from it.
_PEERS_S_MAX: Final = 20.0
# How long the end waits for the others: one node may be ended alone.
_QUIET_S_MAX: Final = 5.0

_LOG: Final = logging.getLogger("peeklock.cluster")


@final
class ClusterNode:
    """This process among the others; the broker sees the cluster through it."""

    def __init__(self, description: NodeDescription) -> None:
        self._description = description
        self._names = store_names(description.stores)
        self._plan = plan(self._names, description.count)
        self.nodes = {
            index: RemoteNode(f"node {index}")
            for index in range(description.count)
            if index != description.index
        }
        self._broker: Broker | None = None
        self._stores: ClusterStores | None = None
        # Told when the parent is gone: nobody keeps the catalog then.
        self.on_orphaned: Callable[[], None] | None = None
        # What other nodes may ask this one for, beside its partitions.
        self.answers: dict[str, Callable[[], Awaitable[Any]]] = {}
        self._coordination: Channel | None = None
        self._catalog: ClusterCatalog | None = None
        self._server: asyncio.Server | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._hosts: set[_NodeSide] = set()
        self._started = asyncio.Event()
        self._applying = asyncio.Lock()
        self._is_closing = False

    # ---- starting and ending

    async def join(self) -> ClusterCatalog:
        """Find the parent; answers the catalog that it keeps."""
        channel = await connect(self._description.coordination_path, self, "the parent")
        channel.notify("join", self._description.index)
        self._coordination = channel
        self._catalog = ClusterCatalog(channel, self._applying)
        return self._catalog

    def own_stores(self) -> list[str]:
        """Name the stores that this node has."""
        return [name for name in self._names if self.has_store(name)]

    def stores(self, own: Stores) -> ClusterStores:
        """Make one view of all stores, with those that this node has opened."""
        others = {
            name: self.nodes[index] for name, index in self._plan.items() if index in self.nodes
        }
        self._stores = ClusterStores(self._names, own, others)
        return self._stores

    async def start(self, broker: Broker) -> None:
        """The broker knows what there is: serve the other nodes, find them, hear of changes."""
        self._broker = broker
        path = self._description.node_path(self._description.index)
        with suppress(FileNotFoundError):
            os.unlink(path)  # of the process that was this node before
        self._server = await serve(path, lambda: _NodeSide(self))
        self._started.set()
        loop = asyncio.get_running_loop()
        connected = []
        for index, node in self.nodes.items():
            first = asyncio.Event()
            connected.append(first.wait())
            task = loop.create_task(self._keep_connected(index, node, first))
            task.add_done_callback(_log_failure)
            self._tasks.append(task)
        if connected:
            _, late = await asyncio.wait(
                [asyncio.ensure_future(each) for each in connected], timeout=_PEERS_S_MAX
            )
            for each in late:
                each.cancel()

    def say_serving(self) -> None:
        """Tell the parent that clients are served."""
        assert self._coordination is not None
        self._coordination.notify("serving")

    async def wait_quiet(self) -> None:
        """This node has let its clients go: wait until all others have, too. Messages that were
        never sent to clients go back to partitions of any node."""
        assert self._coordination is not None
        with suppress(StoreError, TimeoutError):
            await asyncio.wait_for(self._coordination.request("quiet"), _QUIET_S_MAX)

    async def close(self) -> None:
        """Let the connections go; the broker is closed already."""
        self._is_closing = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._server is not None:
            self._server.close()
        await asyncio.gather(*(host.close() for host in list(self._hosts)))
        if self._coordination is not None:
            self._coordination.close()
            await self._coordination.wait_closed()

    async def _keep_connected(self, index: int, node: RemoteNode, first: asyncio.Event) -> None:
        path = self._description.node_path(index)
        while True:
            side = _AskingSide(node)
            try:
                side.channel = await connect(path, side, node.name)
            except OSError:
                await asyncio.sleep(_RETRY_S)
                continue
            except Exception:  # noqa: BLE001 - it is tried again, whatever it was
                _LOG.exception("node-not-connected node=%d", index)
                await asyncio.sleep(_RETRY_S)
                continue
            _LOG.info("node-connected node=%d", index)
            node.connected(side)
            first.set()
            assert self._broker is not None
            for name, owner in self._plan.items():
                if owner == index:
                    # What was deleted while it was away is dropped now.
                    self._broker.store_switched(name, True)
            try:
                await side.is_lost.wait()
            except asyncio.CancelledError:
                side.channel.close()
                await side.channel.wait_closed()
                raise
            if not self._is_closing:
                _LOG.warning("node-lost node=%d", index)
            node.lost()
            await asyncio.sleep(_RETRY_S)

    # ---- ClusterView

    @property
    def changing(self) -> ChangeTurn:
        """Held by whoever changes descriptions."""
        assert self._catalog is not None
        return self._catalog.changing

    def has_store(self, name: str) -> bool:
        """Whether this node has the store."""
        return self._plan.get(name, self._description.index) == self._description.index

    def known(self, entity: Queue | Topic) -> None:
        """This node knows an entity now; one that was made elsewhere may be asked for already."""
        for host in self._hosts:
            host.known(entity)

    def find_door(self, store_name: str, place: RemotePlace) -> PartitionDoor | None:
        """Give the way to a partition that lives on another node; None where it lives here."""
        if self.has_store(store_name):
            return None
        return RemotePartition(place, self.nodes[self._plan[store_name]])

    async def is_idle_elsewhere(self, namespace: str, path: str) -> bool:
        """Whether no other node has seen an entity used; one that is away cannot say so."""
        for node in self.nodes.values():
            try:
                if not await node.request("is-idle", [namespace, path]):
                    return False
            except StoreError:
                return False
        return True

    async def ask_all(self, name: str) -> dict[int, Any]:
        """Ask every other node for something; those that are away are left out."""
        asked = {index: node.request(name, []) for index, node in self.nodes.items()}
        done = await asyncio.gather(*asked.values(), return_exceptions=True)
        found: dict[int, Any] = {}
        for index, result in zip(asked, done, strict=True):
            if isinstance(result, StoreError):
                continue
            if isinstance(result, BaseException):
                raise result
            found[index] = result
        return found

    @property
    def index(self) -> int:
        """The number of this node."""
        return self._description.index

    # ---- what other nodes ask

    def find(self, namespace: str, path: str, incarnation: int) -> Queue | Topic | None:
        """Find the entity that another node means."""
        assert self._broker is not None
        entity = self._broker.owner(namespace, path)
        return None if entity is None or entity.place.incarnation != incarnation else entity

    async def serve_request(self, host: PartitionHost, name: str, arguments: list[Any]) -> Any:
        """Answer another node."""
        if name == "journal":
            handle, after, limit_bytes = arguments
            door = host.door_of(handle)
            if door is None:
                raise Away("this node does not know the partition yet")
            page = await door.journal(after, limit_bytes)
            return [page.first, page.next, page.chunks]
        if name == "is-idle":
            assert self._broker is not None
            return self._broker.is_idle(*arguments)
        if name in self.answers:
            return await self.answers[name]()
        stores = self._stores
        assert stores is not None
        if name == "drop":
            store_name, namespace, path, index = arguments
            await stores.drop(store_name, PartitionId(namespace, path, index))
            return None
        if name == "store-states":
            names = self.own_stores()
            states = [stores.get(each).state() for each in names]
            return [[state.name, state.is_online, state.text] for state in states]
        if name == "store-offline":
            await stores.offline(arguments[0])
            return None
        if name == "store-online":
            await stores.online(arguments[0], arguments[1])
            return None
        raise Unavailable(f"no node knows '{name}'")

    def hosts_began(self, side: _NodeSide) -> None:
        """Another node has connected."""
        self._hosts.add(side)

    def hosts_ended(self, side: _NodeSide) -> None:
        """Another node is gone."""
        self._hosts.discard(side)
        if self._broker is not None:
            for entity in self._broker.entities():
                entity.partitions.on_opened.pop(side, None)

    # ---- Side, towards the parent

    def heard(self, _kind: int, _value: list[Any]) -> None:
        """The parent asks no partitions."""
        raise AssertionError("the parent asks no partitions")

    def noticed(self, _channel: Channel, name: str, _arguments: list[Any]) -> None:
        """The parent has nothing to say by itself."""
        raise ValueError(f"no node knows '{name}'")

    async def asked(self, _channel: Channel, name: str, arguments: list[Any]) -> Any:
        """The parent tells what another node has changed."""
        if name != "apply":
            raise Unavailable(f"no node knows '{name}'")
        await self._started.wait()
        # In the order of their coming: a queue may be removed and made again.
        async with self._applying:
            removed, entries = arguments
            assert self._broker is not None
            await self._broker.apply(
                [(namespace, kind, path) for namespace, kind, path in removed],
                [(namespace, kind, path, text) for namespace, kind, path, text in entries],
            )

    def lost(self, _channel: Channel) -> None:
        """The parent is gone, and with it the catalog: this node ends."""
        if not self._is_closing and self.on_orphaned is not None:
            _LOG.error("parent-lost")
            self.on_orphaned()


def _log_failure(task: asyncio.Task[None]) -> None:
    """A task that ends by itself has failed, and nobody waits for it."""
    if not task.cancelled() and task.exception() is not None:
        _LOG.error("connecting-failed", exc_info=task.exception())


@final
class _AskingSide:
    """The connection by which this node asks another one."""

    def __init__(self, node: RemoteNode) -> None:
        self._node = node
        self.channel: Channel | None = None
        self.is_lost = asyncio.Event()

    @property
    def is_congested(self) -> bool:
        """Whether the other node reads too slowly."""
        return self.channel is not None and self.channel.is_congested

    def send_command(self, value: list[Any]) -> None:
        """Send a command."""
        assert self.channel is not None
        self.channel.send(COMMAND, value)

    def notify_node(self, name: str, arguments: list[Any]) -> None:
        """Say something."""
        assert self.channel is not None
        self.channel.notify(name, *arguments)

    async def request_node(self, name: str, arguments: list[Any]) -> Any:
        """Ask for something."""
        assert self.channel is not None
        return await self.channel.request(name, *arguments)

    def heard(self, _kind: int, value: list[Any]) -> None:
        """A reply has come."""
        self._node.replied(value)

    def noticed(self, _channel: Channel, name: str, arguments: list[Any]) -> None:
        """A partition of the other node has opened, or is out of reach."""
        if name == "partition-opened":
            self._node.opened(arguments[0])
        elif name == "partition-available":
            self._node.available(arguments[0])
        elif name == "partition-unavailable":
            self._node.unavailable(arguments[0])
        else:
            raise ValueError(f"nobody who asks knows '{name}'")

    async def asked(self, _channel: Channel, name: str, _arguments: Sequence[Any]) -> Any:
        """Requests go the other way."""
        raise Unavailable(f"nobody is asked '{name}' here")

    def lost(self, _channel: Channel) -> None:
        """The connection is gone."""
        self.is_lost.set()


@final
class _NodeSide:
    """The connection by which another node asks this one."""

    def __init__(self, node: ClusterNode) -> None:
        self._node = node
        self._channel: Channel | None = None
        self._host = PartitionHost(self)
        node.hosts_began(self)

    def send_reply(self, value: list[Any]) -> None:
        """Send a reply, unless the other node is gone."""
        if self._channel is not None:
            self._channel.send(REPLY, value)

    def notify_node(self, name: str, arguments: list[Any]) -> None:
        """Say something, unless the other node is gone."""
        if self._channel is not None:
            self._channel.notify(name, *arguments)

    async def close(self) -> None:
        """This node ends."""
        channel = self._channel
        if channel is not None:
            channel.close()
            await channel.wait_closed()

    def heard(self, _kind: int, value: list[Any]) -> None:
        """A command has come."""
        self._host.heard(value)

    def noticed(self, channel: Channel, name: str, arguments: list[Any]) -> None:
        """The other node says which partitions and origins it means by which numbers."""
        self._channel = channel
        if name == "know-partition":
            handle, namespace, path, incarnation, index = arguments
            self._host.expect(handle, namespace, path, incarnation, index)
            entity = self._node.find(namespace, path, incarnation)
            if entity is not None:
                self.known(entity)
        elif name == "forget-partition":
            self._host.forget(arguments[0])
        elif name == "forget-origins":
            self._host.forget_origins(arguments)
        else:
            raise ValueError(f"no node knows '{name}'")

    async def asked(self, channel: Channel, name: str, arguments: list[Any]) -> Any:
        """The other node asks for something that is no command."""
        self._channel = channel
        return await self._node.serve_request(self._host, name, arguments)

    def lost(self, _channel: Channel) -> None:
        """The other node is gone."""
        self._channel = None
        self._host.lost()
        self._node.hosts_ended(self)

    def known(self, entity: Queue | Topic) -> None:
        """An entity is there: what was expected of it can be asked."""
        expected = self._host.expected(entity.namespace, entity.path, entity.place.incarnation)
        if expected:
            entity.partitions.on_opened[self] = self._host.opened
        for handle, index in expected:
            self._host.know(handle, entity.partitions.workers[index])
