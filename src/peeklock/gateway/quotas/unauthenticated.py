"""Connections that have shown no token: they have places of their own, and nobody keeps one.

Every connection gets a place. Where there is none, the one goes that is longest without progress,
from the address that has most of them: who means it gets on within moments, and whoever only fills
places makes room for others. Progress are the steps to a token, each counted once.
"""

import ipaddress
from typing import Final, Protocol, final

from peeklock.budgets import Budget


class UnauthenticatedConnection(Protocol):
    """A connection without a token."""

    def make_room(self) -> None:
        """Go: the place is needed."""
        ...


@final
class UnauthenticatedConnections:
    """Who is here without a token, by address, in the order of their progress."""

    def __init__(self, places: Budget) -> None:
        self._places: Final = places
        # By address; who made progress last stands last.
        self._at: Final[dict[str, dict[UnauthenticatedConnection, None]]] = {}
        # Addresses by how many unauthenticated connections they have, and the largest such number.
        self._by_count: Final[dict[int, dict[str, None]]] = {}
        self._most = 0

    @property
    def count(self) -> int:
        """How many there are."""
        return self._places.used

    def came(self, connection: UnauthenticatedConnection, host: str) -> str:
        """Give a connection a place, somebody else's if need be; answers which address it has."""
        address = address_of(host)
        if self._places.is_exhausted:
            self._places.refused += 1
            self.let_one_go()
        self._places.take_anyway(1)
        unauthenticated = self._at.setdefault(address, {})
        unauthenticated[connection] = None
        self._counted(address, len(unauthenticated) - 1, len(unauthenticated))
        return address

    def progressed(self, connection: UnauthenticatedConnection, address: str) -> None:
        """Note that somebody has come a step further."""
        unauthenticated = self._at.get(address)
        if unauthenticated is not None and connection in unauthenticated:
            del unauthenticated[connection]
            unauthenticated[connection] = None

    def left(self, connection: UnauthenticatedConnection, address: str) -> None:
        """Free a place: its holder is gone, or has shown a token."""
        unauthenticated = self._at.get(address)
        if unauthenticated is None or connection not in unauthenticated:
            return
        del unauthenticated[connection]
        self._places.give_back(1)
        self._counted(address, len(unauthenticated) + 1, len(unauthenticated))
        if not unauthenticated:
            del self._at[address]

    def let_one_go(self) -> bool:
        """Free the place of the one that is missed least; answers whether somebody went."""
        if not self._most:
            return False
        address = next(iter(self._by_count[self._most]))
        connection = next(iter(self._at[address]))
        self.left(connection, address)
        connection.make_room()
        return True

    def _counted(self, address: str, before: int, after: int) -> None:
        if before:
            alike = self._by_count[before]
            del alike[address]
            if not alike:
                del self._by_count[before]
        if after:
            self._by_count.setdefault(after, {})[address] = None
        if after > self._most or (before == self._most and before not in self._by_count):
            self._most = after


def address_of(host: str) -> str:
    """Give what counts as one address: of IPv6 the network, in which one host may have any."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(ipaddress.IPv6Network((int(address) >> 64 << 64, 64)))
    return str(address)
