"""What a client asked over HTTP: read whole, and bounded before that."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import final
from urllib.parse import parse_qs, unquote

from peeklock.gateway.http.caller import Caller


@final
@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One request; the names of its headers are in lower case, and as they came in `named`."""

    method: str
    target: str
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    peer: str = ""
    _: KW_ONLY
    named: Sequence[tuple[bytes, bytes]] = ()
    scheme: str = "http"
    caller: Caller = field(default_factory=Caller)
    # Whether others on the network can read it.
    is_exposed: bool = False

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
