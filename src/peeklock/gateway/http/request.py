"""What a client asked over HTTP: read whole, and bounded before that."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final
from urllib.parse import parse_qs, unquote

from peeklock.gateway.http.caller import Caller


@final
@dataclass(slots=True, init=False)
class HttpRequest:
    """One request; the names of its headers are in lower case, and as they came in `named`."""

    method: Final[str]
    target: Final[str]
    headers: Final[dict[str, str]]
    body: Final[bytes]
    peer: Final[str]
    named: Final[Sequence[tuple[bytes, bytes]]]
    scheme: Final[str]
    caller: Final[Caller]
    # Whether others on the network can read it.
    is_exposed: Final[bool]

    def __init__(
        self,
        method: str,
        target: str,
        headers: dict[str, str] | None = None,
        body: bytes = b"",
        peer: str = "",
        *,
        named: Sequence[tuple[bytes, bytes]] = (),
        scheme: str = "http",
        caller: Caller | None = None,
        is_exposed: bool = False,
    ) -> None:
        self.method = method
        self.target = target
        self.headers = headers or {}
        self.body = body
        self.peer = peer
        self.named = named
        self.scheme = scheme
        self.caller = caller or Caller()
        self.is_exposed = is_exposed

    @property
    def path(self) -> str:
        """Where it goes, without the query and still encoded."""
        return self.target.partition("?")[0]

    def segments(self) -> list[str]:
        """The parts of the path, each decoded."""
        return [unquote(segment) for segment in self.path.split("/")[1:]]

    def flag(self, name: str) -> bool:
        """Tell whether the query sets a flag."""
        query = self.target.partition("?")[2]
        return parse_qs(query).get(name, [""])[-1].lower() == "true"
