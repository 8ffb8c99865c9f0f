"""Which names a request may call us by, and which web pages may speak to us.

A web page can let its reader's browser ask any address. The browser says where the page is from
(`Origin`), and a foreign one is refused. A page whose own name is made to mean this machine (DNS
rebinding) is not foreign to the browser; but it says that name (`Host`), and a broker that listens
on loopback knows all names by which it can honestly be called. Elsewhere names are free, because
only those who run the network know them.
"""

import ipaddress
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Final, final
from urllib.parse import urlsplit

from peeklock.auth.namespaces import Namespace, Namespaces
from peeklock.auth.rights import AuthorizationRule
from peeklock.gateway.http.answer import Answer, refused

ANY: Final = "*"
_LOOPBACK: Final = "localhost"
# Behind the name of a namespace: nobody but this machine or the service itself has names there.
_SUFFIXES: Final = ("", ".localhost", ".servicebus.windows.net")
# No entity has more of them: names have 260 characters at most.
_SEGMENTS_MAX: Final = 132
_DEFAULT_PORTS: Final = frozenset({"", "80", "443"})


@final
class Hosts:
    """The names of this broker, and the origins of its web pages."""

    def __init__(
        self,
        namespaces: Namespaces,
        *,
        names: Iterable[str] = (),
        origins: Iterable[str] = (),
        is_loopback: bool = False,
    ) -> None:
        """`names` and `origins` are those that somebody configured; a name may begin with a star
        for its first label."""
        self._namespaces = namespaces
        self._names = frozenset(name.lower().rstrip(".") for name in names)
        self._origins = frozenset(_bare_origin(origin) for origin in origins)
        self._is_loopback = is_loopback

    def is_own(self, host: str) -> bool:
        """Tell whether a name, without a port, was given to this broker by who runs it."""
        name = host.lower().rstrip(".")
        if name == _LOOPBACK or _is_loopback_address(name) or (name in self._names):
            return True
        if f"*.{name.partition('.')[2]}" in self._names:
            return True
        return any(
            name == each.name.lower() + suffix
            for each in self._namespaces.all()
            for suffix in _SUFFIXES
        )

    def begins(self, path: str, is_entity: Callable[[str], bool]) -> bool:
        """Tell whether a path, in lower case, begins with one of these names; one that is an
        entity's, or that of one above it, does not."""
        segments = path.split("/", _SEGMENTS_MAX)
        if not self.is_own(segments[0]):
            return False
        above = accumulate(segments, lambda left, right: f"{left}/{right}")
        return len(segments) <= _SEGMENTS_MAX and not any(is_entity(each) for each in above)

    def refusal(self, host: str, origin: str) -> Answer | None:
        """Say why a request with these headers is not answered; None where it is."""
        if origin and not self._is_welcome(origin, host):
            return refused(
                403,
                f"Pages of '{origin}' may not use this broker; --allowed-origin can allow them.",
            )
        if not self._is_loopback or not host or self._is_loopback_name(host):
            return None
        return refused(
            421,
            f"This broker is not known as '{host}'; it listens on this machine alone, and "
            "--allowed-host can add a name.",
        )

    def _is_loopback_name(self, host: str) -> bool:
        name = _split(host)[0]
        if ANY in self._names or name.endswith(f".{_LOOPBACK}"):
            return True
        return _is_address(name) or self.is_own(name)

    def _is_welcome(self, origin: str, host: str) -> bool:
        if ANY in self._origins or _bare_origin(origin) in self._origins:
            return True
        scheme, is_whole, authority = origin.partition("://")
        if not is_whole or scheme.lower() not in ("http", "https"):
            return False
        return _split(authority) == _split(host)


def make_namespaces(
    rules: Mapping[str, Sequence[AuthorizationRule]],
    find: Callable[[str, str], object | None],
    *,
    names: Iterable[str] = (),
    origins: Iterable[str] = (),
    is_loopback: bool = False,
) -> tuple[Namespaces, Hosts]:
    """Make the namespaces with these rules, and the names of the broker, by which their key rings
    tell hosts from entities; entities are found by namespace and path."""

    def is_host(namespace: str, path: str) -> bool:
        return hosts.begins(path, lambda name: find(namespace, name) is not None)

    spaces = [Namespace(name, each, is_host=is_host) for name, each in rules.items()]
    namespaces = Namespaces(spaces, is_host)
    hosts = Hosts(namespaces, names=names, origins=origins, is_loopback=is_loopback)
    return namespaces, hosts


def _split(host: str) -> tuple[str, str]:
    """Take a name and its port apart; the ports that nobody needs to say are none."""
    try:
        parts = urlsplit(f"//{host}")
        name, port = parts.hostname or "", parts.port
    except ValueError:
        return "", "?"
    said = "" if port is None else str(port)
    return name.rstrip("."), "" if said in _DEFAULT_PORTS else said


def _bare_origin(origin: str) -> str:
    return origin.lower().rstrip("/")


def _is_loopback_address(name: str) -> bool:
    try:
        return ipaddress.ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return False


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
