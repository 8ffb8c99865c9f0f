"""What one connection may do at the moment: its grants by path, each until it expires."""

from typing import final

from peeklock.auth.keyring import NEVER, Grant
from peeklock.auth.rights import NO_RIGHTS, Rights, allows
from peeklock.auth.sas import covers, resource_path
from peeklock.clock import Instant


@final
class Claims:
    """Holds the grants of a connection; a newer grant for a path replaces the older one."""

    __slots__ = ("_grants",)

    def __init__(self) -> None:
        self._grants: dict[str, Grant] = {}

    def put(self, grant: Grant) -> None:
        """Take a grant, in place of an older one for the same path."""
        self._grants[grant.path] = grant

    def rights(self, path: str, now: Instant) -> Rights:
        """Add up the rights that living grants give on a path."""
        wanted = resource_path(path)
        rights = NO_RIGHTS
        for grant in self._grants.values():
            if grant.expires_at > now and covers(grant.path, wanted):
                rights |= grant.rights
        return rights

    def allows(self, path: str, wanted: Rights, now: Instant) -> bool:
        """Tell whether living grants give all wanted rights on a path."""
        return allows(self.rights(path, now), wanted)

    def expires_at(self, path: str, wanted: Rights) -> Instant:
        """Return when the last grant ends that gives the wanted rights on a path; 0 for none."""
        target = resource_path(path)
        return max(
            (
                grant.expires_at
                for grant in self._grants.values()
                if covers(grant.path, target) and allows(grant.rights, wanted)
            ),
            default=0,
        )

    def next_expiry(self) -> Instant | None:
        """Return the instant at which the next grant ends, or None while none will."""
        earliest = min((grant.expires_at for grant in self._grants.values()), default=NEVER)
        return None if earliest == NEVER else earliest

    def expire(self, now: Instant) -> list[Grant]:
        """Drop the grants whose time is over and return them, for the links that lived on them."""
        ended = [grant for grant in self._grants.values() if grant.expires_at <= now]
        for grant in ended:
            del self._grants[grant.path]
        return ended
