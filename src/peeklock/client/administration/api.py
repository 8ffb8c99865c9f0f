"""The administration API as it is: one request for each thing that is asked.

`ServiceBusAdministrationClient` speaks in properties; this speaks in places and descriptions, which
have the names of the configuration file, as commands, import and export do.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, final
from urllib.parse import quote

from peeklock.client.administration import atom
from peeklock.client.administration.atom import Description, Feed
from peeklock.client.administration.errors import (
    ResourceNotFoundError,
    ServiceResponseError,
    refusal,
)
from peeklock.client.administration.http_client import HttpClient
from peeklock.client.administration.places import ResourcePath

_QUERY: Final = "api-version=2024-05"
_CONTENT_TYPE: Final = "application/atom+xml;type=entry;charset=utf-8"
_PAGE: Final = 100
_NOT_FOUND: Final = 404


def _once(read: Callable[[], Feed]) -> Feed:
    return read()


@final
class AdministrationApi:
    """The entities of the namespace that an HTTP client leads to."""

    def __init__(self, http: HttpClient, *, token_path: str = "") -> None:
        """Tokens are made for everything below `token_path`: a key may be that of one entity."""
        self._http = http
        self._token_path = token_path

    def namespace(self) -> dict[str, str]:
        """Return what is told of the namespace, its `Name` among it."""
        status, content = self._ask("GET", "$namespaceinfo")
        try:
            return atom.read_namespace(content)
        except atom.Unreadable:
            raise self._http.not_a_broker(status) from None

    def look(self, path: str) -> Description | None:
        """Return the queue, topic, subscription or rule at a path, None where nothing is."""
        try:
            found = self._read("GET", path)
        except ResourceNotFoundError:
            return None
        # An empty list is how the service says that there is nothing.
        return None if isinstance(found, Feed) else found

    def find(self, place: ResourcePath) -> Description | None:
        """Return what is at a place, None where nothing is; what is of another kind is an error."""
        found = self.look(place.path)
        if found is not None and found.kind != place.kind:
            problem = f"'{place.path}' is a {found.kind} and not a {place.kind}"
            raise ResourceNotFoundError(problem, status_code=_NOT_FOUND)
        return found

    def get(self, place: ResourcePath) -> Description:
        """Return what is at a place."""
        found = self.find(place)
        if found is None:
            problem = f"there is no {place.kind} '{place.path}'"
            raise ResourceNotFoundError(problem, status_code=_NOT_FOUND)
        return found

    def page(self, place: ResourcePath, skip: int, top: int) -> Feed:
        """Return a part of a list."""
        found = self._read("GET", place.path, query=f"$skip={skip}&$top={top}&")
        if not isinstance(found, Feed):
            raise self._http.not_a_broker(200)
        return found

    def every(
        self, place: ResourcePath, ask: Callable[[Callable[[], Feed]], Feed] = _once
    ) -> Iterator[Description]:
        """Return a whole list, page by page; `ask` may ask for a page more than once."""
        skip = 0
        while True:
            page = ask(partial(self.page, place, skip, _PAGE))
            yield from page.entries
            skip += len(page.entries)
            if not page.has_more or not page.entries:
                return

    def create(
        self, place: ResourcePath, new: Description, first_rule: Description | None = None
    ) -> Description:
        """Make something that is not there yet, and return it as it was made."""
        return self._put(place, new, atom.write_entry(new, first_rule))

    def update(self, place: ResourcePath, changed: Description) -> Description:
        """Change something that is there; what is described is all of it."""
        return self._put(place, changed, atom.write_entry(changed), is_update=True)

    def delete(self, place: ResourcePath) -> None:
        """Delete something. A name can be that of a queue or of a topic: it is looked at first."""
        self.get(place)
        self._ask("DELETE", place.path)

    def _put(
        self, place: ResourcePath, described: Description, body: bytes, *, is_update: bool = False
    ) -> Description:
        headers = {"Content-Type": _CONTENT_TYPE, **self._for_destinations(described)}
        if is_update:
            headers["If-Match"] = "*"
        made = self._read("PUT", place.path, headers=headers, body=body)
        if isinstance(made, Feed):
            raise self._http.not_a_broker(200)
        return made

    def _read(
        self,
        method: str,
        path: str,
        *,
        query: str = "",
        headers: dict[str, str] | None = None,
        body: bytes = b"",
    ) -> Description | Feed:
        status, content = self._ask(method, path, query, headers, body)
        try:
            return atom.read_answer(content)
        except atom.Unreadable as problem:
            raise ServiceResponseError(f"{self._http.not_a_broker(status)}: {problem}") from problem

    def _for_destinations(self, description: Description) -> dict[str, str]:
        """Show that messages may be sent where they are to be forwarded to."""
        # As the official clients write it, whatever carries the request.
        token = self._http.endpoint.authorizer.authorization("http")
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
        answer = self._http.request(method, target, headers, body, token_path=self._token_path)
        if answer.status < 300:
            return answer.status, answer.content
        reason = atom.read_error(answer.content) or _json_error(answer.content)
        if not reason:
            raise self._http.not_a_broker(answer.status)
        raise refusal(answer.status, reason)


def _json_error(content: bytes) -> str:
    """Read the refusal of a node that does not speak XML."""
    import json

    try:
        document = json.loads(content)
    except ValueError:
        return ""
    return str(document.get("error", "")) if isinstance(document, dict) else ""
