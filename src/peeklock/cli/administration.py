"""A client of the administration API: one request for each thing that is asked."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, final
from urllib.parse import quote

from peeklock.cli import atom
from peeklock.cli.atom import Description, Feed
from peeklock.cli.connection import ConnectionProblem
from peeklock.cli.reach import Reach

_QUERY: Final = "api-version=2024-05"
_CONTENT_TYPE: Final = "application/atom+xml;type=entry;charset=utf-8"
_PAGE: Final = 100


class Absent(ConnectionProblem):
    """What was asked for is not there."""


@final
@dataclass(slots=True, init=False)
class Place:
    """Where an entity or a rule is, or a list of them."""

    kind: Final[str]
    path: Final[str]

    def __init__(self, kind: str, path: str) -> None:
        self.kind = kind
        self.path = path

    @property
    def told(self) -> str:
        """How people speak of it."""
        return f"the {self.kind} '{self.path}'"


def queue(name: str) -> Place:
    """Say where a queue is."""
    return Place(atom.QUEUE, name)


def topic(name: str) -> Place:
    """Say where a topic is."""
    return Place(atom.TOPIC, name)


def subscription(topic_name: str, name: str) -> Place:
    """Say where a subscription is."""
    return Place(atom.SUBSCRIPTION, f"{topic_name}/Subscriptions/{name}")


def rule(topic_name: str, subscription_name: str, name: str) -> Place:
    """Say where a rule is."""
    return Place(atom.RULE, f"{topic_name}/Subscriptions/{subscription_name}/Rules/{name}")


QUEUES: Final = Place(atom.QUEUE, "$Resources/queues")
TOPICS: Final = Place(atom.TOPIC, "$Resources/topics")


def subscriptions(topic_name: str) -> Place:
    """Say where the subscriptions of a topic are."""
    return Place(atom.SUBSCRIPTION, f"{topic_name}/Subscriptions")


def rules(topic_name: str, subscription_name: str) -> Place:
    """Say where the rules of a subscription are."""
    return Place(atom.RULE, f"{topic_name}/Subscriptions/{subscription_name}/Rules")


@final
class Administration:
    """The entities of the namespace behind a reach."""

    def __init__(self, reach: Reach) -> None:
        self._reach = reach

    def namespace(self) -> str:
        """Give the name of the namespace."""
        status, content = self._ask("GET", "$namespaceinfo")
        try:
            return atom.read_namespace(content)
        except atom.Unreadable:
            raise self._reach.stranger(status) from None

    def find(self, place: Place) -> Description | None:
        """Give what is at a place, None where nothing is."""
        try:
            found = self._read("GET", place)
        except Absent:
            return None
        # An empty list is how the service says that there is nothing.
        if isinstance(found, Feed):
            return None
        if found.kind != place.kind:
            raise ConnectionProblem(f"'{place.path}' is a {found.kind} and not a {place.kind}")
        return found

    def get(self, place: Place) -> Description:
        """Give what is at a place."""
        found = self.find(place)
        if found is None:
            raise Absent(f"there is no {place.kind} '{place.path}'")
        return found

    def page(self, place: Place, skip: int, top: int) -> Feed:
        """Give a part of a list."""
        found = self._read("GET", place, query=f"$skip={skip}&$top={top}&")
        if not isinstance(found, Feed):
            raise self._reach.stranger(200)
        return found

    def every(self, place: Place) -> Iterator[Description]:
        """Give a whole list, page by page."""
        skip = 0
        while True:
            page = self.page(place, skip, _PAGE)
            yield from page.entries
            skip += len(page.entries)
            if not page.has_more or not page.entries:
                return

    def create(self, place: Place, new: Description, first_rule: Description | None = None) -> None:
        """Make something; it must not be there."""
        self._read("PUT", place, body=atom.write_entry(new, first_rule), values=new)

    def update(self, place: Place, changed: Description) -> None:
        """Change something that is there; what is described is all of it."""
        self._read("PUT", place, body=atom.write_entry(changed), values=changed, is_update=True)

    def delete(self, place: Place) -> None:
        """Delete something. A name can be that of a queue or of a topic: it is looked at first."""
        self.get(place)
        self._ask("DELETE", place.path)

    def _read(
        self,
        method: str,
        place: Place,
        *,
        query: str = "",
        body: bytes = b"",
        values: Description | None = None,
        is_update: bool = False,
    ) -> Description | Feed:
        headers = {"Content-Type": _CONTENT_TYPE} if body else {}
        if is_update:
            headers["If-Match"] = "*"
        if values is not None:
            headers |= self._for_destinations(values)
        status, content = self._ask(method, place.path, query, headers, body)
        try:
            return atom.read_answer(content)
        except atom.Unreadable as problem:
            raise ConnectionProblem(f"{self._reach.stranger(status)}: {problem}") from problem

    def _for_destinations(self, description: Description) -> dict[str, str]:
        """Show that messages may be sent where they are to be forwarded to."""
        token = self._reach.connection.authorization("http")
        headers = {
            "ForwardTo": "ServiceBusSupplementaryAuthorization",
            "ForwardDeadLetteredMessagesTo": "ServiceBusDlqSupplementaryAuthorization",
        }
        return {header: token for key, header in headers.items() if description.values.get(key)}

    def _ask(
        self,
        method: str,
        path: str,
        query: str = "",
        headers: dict[str, str] | None = None,
        body: bytes = b"",
    ) -> tuple[int, bytes]:
        target = f"/{quote(path, safe='/$')}?{query}{_QUERY}"
        status, content = self._reach.request(method, target, headers, body)
        if status < 300:
            return status, content
        reason = atom.read_error(content) or _json_error(content)
        if not reason:
            raise self._reach.stranger(status)
        raise (Absent if status == 404 else ConnectionProblem)(reason)


def _json_error(content: bytes) -> str:
    """Read the refusal of a part of the door that does not speak XML."""
    import json

    try:
        document = json.loads(content)
    except ValueError:
        return ""
    return str(document.get("error", "")) if isinstance(document, dict) else ""
