"""The entities of a namespace, as jobs need them."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, final

from peeklock.client.administration import places
from peeklock.client.administration.api import AdministrationApi
from peeklock.client.administration.atom import QUEUE, SUBSCRIPTION
from peeklock.client.administration.errors import AzureError
from peeklock.client.administration.http_client import HttpClient, http_endpoint
from peeklock.client.administration.places import ResourcePath
from peeklock.spark.jobs.frame import Bus, Impossible


@final
@dataclass(frozen=True, slots=True)
class ListedEntity:
    """A queue, topic or subscription with its properties as the service names them."""

    kind: str
    name: str
    topic: str = ""
    properties: dict[str, Any] = field(default_factory=dict)

    @property
    def path(self) -> str:
        """Where messages are received from or sent to."""
        return f"{self.topic}/Subscriptions/{self.name}" if self.topic else self.name

    @property
    def dead_letter_count(self) -> int | None:
        """How many dead letters there are; None where nobody says."""
        told: int | None = self.properties.get("DeadLetterMessageCount")
        return told

    @property
    def options(self) -> dict[str, str]:
        """How `format("servicebus")` is told of it."""
        if self.kind == SUBSCRIPTION:
            return {"topic": self.topic, "subscription": self.name}
        return {self.kind: self.name}


def entity_at(path: str) -> ListedEntity:
    """Return what a path means, without asking; a name alone is as good for a queue as for a
    topic."""
    topic, is_subscription, name = path.strip("/").partition("/Subscriptions/")
    if is_subscription:
        return ListedEntity(SUBSCRIPTION, name, topic)
    return ListedEntity(QUEUE, topic)


@final
class NamespaceListing:
    """What a connection string leads to."""

    def __init__(self, bus: Bus) -> None:
        self._http = HttpClient(http_endpoint(bus.connection_string, bus.http_port or 0))
        self._api = AdministrationApi(self._http)

    def entities(self) -> list[ListedEntity]:
        """Return all queues, topics and subscriptions."""
        try:
            queues = list(self._every(places.QUEUES))
            topics = list(self._every(places.TOPICS))
            subscriptions = [
                entity
                for topic in topics
                for entity in self._every(places.subscriptions(topic.name), topic.name)
            ]
        except AzureError as error:
            raise Impossible(f"the entities cannot be listed: {error}") from error
        finally:
            self._http.close()
        return [*queues, *topics, *subscriptions]

    def _every(self, place: ResourcePath, topic: str = "") -> Iterator[ListedEntity]:
        for found in self._api.every(place):
            yield ListedEntity(found.kind, found.name, topic, {**found.values, **found.runtime})
