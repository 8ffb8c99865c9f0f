"""The entities of a namespace, asked for at the administration door."""

import http.client
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, final
from urllib.parse import quote

from defusedxml import ElementTree

from peeklock.spark.door import door
from peeklock.spark.jobs.frame import Bus, Impossible

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

QUEUE: Final = "queue"
TOPIC: Final = "topic"
SUBSCRIPTION: Final = "subscription"

_TIMEOUT_S: Final = 60.0
_ANSWER_BYTES_MAX: Final = 64 << 20
_PAGE: Final = 100
_ATOM: Final = "{http://www.w3.org/2005/Atom}"
_SERVICE: Final = "{http://schemas.microsoft.com/netservices/2010/10/servicebus/connect}"


@final
@dataclass(frozen=True, slots=True)
class Entity:
    """A queue, topic or subscription with its properties as the service names them."""

    kind: str
    name: str
    topic: str = ""
    properties: dict[str, str] = field(default_factory=dict)

    @property
    def path(self) -> str:
        """Where messages are received from or sent to."""
        return f"{self.topic}/Subscriptions/{self.name}" if self.topic else self.name

    @property
    def dead_letter_count(self) -> int | None:
        """How many dead letters there are; None where nobody says."""
        told = self.properties.get("DeadLetterMessageCount", "")
        return int(told) if told.isdigit() else None

    @property
    def options(self) -> dict[str, str]:
        """How `format("servicebus")` is told of it."""
        if self.kind == SUBSCRIPTION:
            return {"topic": self.topic, "subscription": self.name}
        return {self.kind: self.name}


def entity_at(path: str) -> Entity:
    """What a path means, without asking; a name alone is as good for a queue as for a topic."""
    topic, is_subscription, name = path.strip("/").partition("/Subscriptions/")
    if is_subscription:
        return Entity(SUBSCRIPTION, name, topic)
    return Entity(QUEUE, topic)


@final
class Namespace:
    """What a connection string leads to."""

    def __init__(self, bus: Bus) -> None:
        self._door = door(bus.connection_string, bus.http_port or 0)

    def entities(self) -> list[Entity]:
        """All queues, topics and subscriptions."""
        queues = list(self._every("$Resources/queues", QUEUE))
        topics = list(self._every("$Resources/topics", TOPIC))
        subscriptions = [
            entity
            for topic in topics
            for entity in self._every(f"{topic.name}/Subscriptions", SUBSCRIPTION, topic.name)
        ]
        return [*queues, *topics, *subscriptions]

    def _every(self, path: str, kind: str, topic: str = "") -> Iterator[Entity]:
        skip = 0
        while True:
            page = [_entity(entry, kind, topic) for entry in self._page(path, skip)]
            yield from page
            skip += len(page)
            if len(page) < _PAGE:
                return

    def _page(self, path: str, skip: int) -> "list[Element]":
        query = f"$skip={skip}&$top={_PAGE}&api-version=2024-05"
        content = self._get(f"/{quote(path, safe='/$')}?{query}")
        try:
            return list(ElementTree.fromstring(content).iter(f"{_ATOM}entry"))
        except ElementTree.ParseError as error:
            raise Impossible(f"what answers on port {self._door.port} is no Service Bus") from error

    def _get(self, target: str) -> bytes:
        broker = self._door.opened(_TIMEOUT_S)
        try:
            broker.request("GET", target, headers=self._door.headers())
            answer = broker.getresponse()
            content = answer.read(_ANSWER_BYTES_MAX)
        except (OSError, http.client.HTTPException) as error:
            where = f"{self._door.host}:{self._door.port}"
            raise Impossible(f"cannot reach {where}: {error}") from error
        finally:
            broker.close()
        if answer.status >= 300:
            raise Impossible(f"the entities cannot be listed: {answer.status} {answer.reason}")
        return content


def _entity(entry: "Element", kind: str, topic: str) -> Entity:
    described = entry.find(f"{_ATOM}content/{_SERVICE}{kind.capitalize()}Description")
    # Counts lie one level deeper, in a namespace of their own.
    properties = {
        str(child.tag).rpartition("}")[2]: child.text or ""
        for child in (described.iter() if described is not None else ())
    }
    return Entity(kind, entry.findtext(f"{_ATOM}title") or "", topic, properties)
