"""Which namespace a connection belongs to: found out once, and then it stays.

The host name in `open` says it, or else the first credential that is good somewhere. Until then a
connection has no right to anything, so that nothing has been looked up anywhere.
"""

from typing import Final, final

from peeklock.auth.keyring import Grant
from peeklock.auth.refusal import AuthRefusal
from peeklock.gateway.amqp.door import Door, Doors
from peeklock.gateway.amqp.wire import Wire


@final
class Belonging:
    """Leads one connection through the door of its namespace, and counts it there."""

    __slots__ = ("_doors", "_key", "_wire", "has_place", "is_inside", "is_turned_away")

    def __init__(self, doors: Doors, wire: Wire) -> None:
        self._doors: Final = doors
        self._wire: Final = wire
        # The rule and the key that SASL has brought; open says where they are to be good.
        self._key: tuple[str, str] | None = None
        # It is one of the connections that the namespace may have: its first token was good.
        self.has_place = False
        # Its namespace is known.
        self.is_inside = False
        # There are as many connections as there may be: this one gets no rights any more, whatever
        # it has sent along.
        self.is_turned_away = False

    def show_key(self, rule_name: str, key: str, host: str) -> AuthRefusal | None:
        """Take a credential of SASL; answers why it is good for nothing."""
        door = self._doors.at(host) or self._doors.of_key(rule_name, key)
        self._stand_before(door)
        found = door.keys.verify_plain(rule_name, key)
        if isinstance(found, AuthRefusal):
            return found
        self._key = (rule_name, key)
        return None

    def open(self, host: str) -> list[Grant] | AuthRefusal:
        """Go where the host name leads, or where the key of SASL does; answers what it grants."""
        door = self._doors.at(host)
        key = self._key
        self._key = None
        if key is None:
            if door is not None:
                self._stand_before(door)
                self.is_inside = True
            return []
        if door is None:
            door = self._doors.of_key(key[0], key[1])
        self._stand_before(door)
        grants = door.keys.verify_plain(key[0], key[1])
        if not isinstance(grants, AuthRefusal):
            self._take_place(door)
        return grants

    def verify(self, token: str, audience: str) -> Grant | AuthRefusal:
        """Check a token; the first good one says where the connection belongs, if nothing did."""
        if not self.is_inside:
            self._stand_before(self._doors.of_token(token))
        door = self._wire.door
        now, is_exposed = door.clock.wall(), self._wire.is_exposed
        found = door.keys.verify(token, audience, now, is_exposed=is_exposed)
        if isinstance(found, Grant) and not self.has_place:
            self._take_place(door)
        return found

    def leave(self) -> None:
        """The connection is no more."""
        if self.has_place:
            self.has_place = False
            self._wire.door.attendance.leave()

    def _stand_before(self, door: Door) -> None:
        """Ask at a door: what is refused there is refused in the name of that namespace."""
        self._wire.door = door

    def _take_place(self, door: Door) -> None:
        self._wire.door = door
        self.is_inside = True
        self.has_place = door.attendance.join()
        self.is_turned_away = not self.has_place
