"""The stores of a cluster, as one node has them: its own, and those that it asks others about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import final

from peeklock.cluster.remote_partition import RemoteNode
from peeklock.store.store import PartitionId, StoreError
from peeklock.store.stores import Stores, StoreState, SwitchedStore, spread


@final
class ClusterStores:
    """All stores by their names; those of other nodes are asked there."""

    def __init__(self, names: Sequence[str], own: Stores, nodes: Mapping[str, RemoteNode]) -> None:
        """`nodes` says who has which of the stores that are not this node's own."""
        self._names = tuple(names)
        self._own = own
        self._nodes = dict(nodes)

    def get(self, name: str) -> SwitchedStore:
        """Give a store of this node."""
        return self._own.get(name)

    async def drop(self, name: str, partition: PartitionId) -> None:
        """Remove all of a partition durably, wherever its store is."""
        node = self._nodes.get(name)
        if node is None:
            await self._own.drop(name, partition)
        else:
            arguments = [name, partition.namespace, partition.path, partition.index]
            await node.request("drop", arguments)

    def place(self, count: int, used: Mapping[str, int]) -> list[str]:
        """Choose stores for the partitions of a new entity, over all nodes that are there."""
        online = [name for name in self._names if self._is_online(name)]
        return spread(online or list(self._names), count, used)

    def _is_online(self, name: str) -> bool:
        node = self._nodes.get(name)
        return self._own.get(name).is_online if node is None else node.is_connected

    async def all_states(self) -> list[StoreState]:
        """Tell how each store of the cluster is."""
        found = {state.name: state for state in self._own.states()}
        for node in dict.fromkeys(self._nodes.values()):
            try:
                for name, is_online, text in await node.request("store-states", []):
                    found[name] = StoreState(name, is_online, text)
            except StoreError:
                for name, other in self._nodes.items():
                    if other is node:
                        found[name] = StoreState(name, False, f"{node.name} is out of reach")
        ordered = [found[name] for name in self._names if name in found]
        return ordered + [state for name, state in sorted(found.items()) if name not in self._names]

    async def offline(self, name: str) -> None:
        """Close a store and let its directory go, wherever it is."""
        node = self._nodes.get(name)
        if node is None:
            await self._own.offline(name)
        else:
            await node.request("store-offline", [name])

    async def online(self, name: str, may_make: bool = False) -> None:
        """Open a store anew, wherever it is."""
        node = self._nodes.get(name)
        if node is None:
            await self._own.online(name, may_make)
        else:
            await node.request("store-online", [name, may_make])

    async def close(self) -> None:
        """Close those of this node."""
        await self._own.close()
