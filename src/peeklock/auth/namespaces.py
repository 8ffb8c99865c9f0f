"""The namespaces of a server, each with its keys, and which of them a client means.

A client says it by the host name that it uses, or else by the key that it shows. Whoever says
neither means the first.
"""

import ipaddress
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeAlias, final

from peeklock.auth.keyring import KeyRing
from peeklock.auth.refusal import AuthRefusal
from peeklock.auth.rights import AuthorizationRule
from peeklock.auth.sas import is_jwt, parse_sas

# The longest name that DNS has; longer ones are nobody's, and cost nothing.
_HOST_LENGTH_MAX: Final = 253

# Tells hosts from entities, asked with a namespace's name and a path.
IsHost: TypeAlias = Callable[[str, str], bool]


@final
class Namespace:
    """A name and the keys that open it; what one namespace has is nothing to another."""

    def __init__(
        self,
        name: str,
        rules: Sequence[AuthorizationRule] = (),
        *,
        is_configured: bool = True,
        is_host: IsHost | None = None,
    ) -> None:
        self.name: Final = name
        self.keys: Final = KeyRing(rules, None if is_host is None else partial(is_host, name))
        # One that is not stands only in the catalog, and the keys of its entities alone open it.
        self.is_configured: Final = is_configured


@final
class Namespaces:
    """Those of the configuration in its order, and behind them those that were kept."""

    def __init__(self, configured: Sequence[Namespace], is_host: IsHost | None = None) -> None:
        """There is at least one; those that are made later know hosts by `is_host`."""
        self._by_key: Final = {namespace.name.lower(): namespace for namespace in configured}
        if not self._by_key or len(self._by_key) != len(configured):
            raise ValueError("there must be at least one namespace, and each name once")
        self._is_host: Final = is_host

    def all(self) -> list[Namespace]:
        """List them."""
        return list(self._by_key.values())

    @property
    def first(self) -> Namespace:
        """The one that is meant by who says nothing."""
        return next(iter(self._by_key.values()))

    def get(self, name: str) -> Namespace:
        """Return the one with this name; one that nobody configured is known from now on."""
        namespace = self._by_key.get(name.lower())
        if namespace is None:
            namespace = Namespace(name, is_configured=False, is_host=self._is_host)
            self._by_key[name.lower()] = namespace
        return namespace

    def add(self, name: str, rules: Sequence[AuthorizationRule]) -> Namespace:
        """Make one while others are served; a ValueError says that there is one of that name."""
        if name.lower() in self._by_key:
            raise ValueError(f"there is a namespace '{name}' already")
        namespace = Namespace(name, rules, is_host=self._is_host)
        self._by_key[name.lower()] = namespace
        return namespace

    def drop(self, name: str) -> None:
        """Forget one that has nothing left. The first stays: somebody must be meant."""
        if self._by_key[name.lower()] is self.first:
            raise ValueError(f"the namespace '{name}' is the first, which stays")
        del self._by_key[name.lower()]

    def at(self, host: str) -> Namespace | None:
        """Find the one that a host name begins with: `ns`, `ns.localhost`, `ns:5672`.

        Where there is but one it is meant whatever the host.
        """
        if len(self._by_key) == 1:
            return self.first
        name = _bare(host)
        while name:
            namespace = self._by_key.get(name)
            if namespace is not None:
                return namespace
            # Names may have dots, so that a longer beginning is better than a shorter one.
            name = name.rpartition(".")[0]
        return None

    def of_token(self, token: str) -> Namespace:
        """Find the one whose key has signed a token, or that believes its issuer; the first where
        none does."""
        if is_jwt(token):
            return next((e for e in self.all() if e.keys.believes(token)), self.first)
        parsed = parse_sas(token)
        if isinstance(parsed, AuthRefusal):
            return self.first
        return next((each for each in self.all() if each.keys.has_signed(parsed)), self.first)

    def of_key(self, rule_name: str, key: str) -> Namespace:
        """Return the same for a rule's name and key, shown as they are."""
        for namespace in self.all():
            if not isinstance(namespace.keys.verify_plain(rule_name, key), AuthRefusal):
                return namespace
        return self.first


def _bare(host: str) -> str:
    """Cut what stands behind a host name, and make nothing of an address."""
    # Over WebSockets Python's client appends its path to the host (protocol 1.2).
    name = host.partition("/")[0].partition(":")[0].rstrip(".").lower()
    if len(name) > _HOST_LENGTH_MAX or name.startswith("["):
        return ""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return name
    return ""
