"""What a broker needs to know of the other brokers of its cluster."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from peeklock.broker.entities import Queue, Topic
from peeklock.broker.partition_factory import RemotePlace
from peeklock.broker.worker.partition_door import PartitionDoor


class ClusterView(Protocol):
    """The cluster, as one of its brokers sees it."""

    @property
    def changing(self) -> AbstractAsyncContextManager[Any]:
        """Held by whoever changes descriptions: by one broker of the cluster at a time, which then
        knows all that the others have changed."""
        ...

    def find_door(self, store_name: str, place: RemotePlace) -> PartitionDoor | None:
        """Give the way to a partition that lives on another node; None where it lives here."""
        ...

    def has_store(self, name: str) -> bool:
        """Whether this node has the store."""
        ...

    def known(self, entity: Queue | Topic) -> None:
        """This node knows an entity now: others may ask its partitions."""
        ...

    async def is_idle_elsewhere(self, namespace: str, path: str) -> bool:
        """Whether no other node has seen an entity used for as long as its owner said."""
        ...
