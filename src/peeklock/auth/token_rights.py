"""What one connection may do at the moment: its grants by path, each until it expires.

A connection may have thousands of links and a token for each: nothing here walks all grants, and
the review after rules have changed takes some at a time.
"""

from heapq import heappop, heappush
from typing import Final, final

from peeklock.auth.keyring import NEVER, KeyRing, TokenGrant
from peeklock.auth.rights import NO_RIGHTS, Rights, allows
from peeklock.auth.sas import prefixes, resource_path
from peeklock.clock import Instant

# More grants than links would need, by far; the one that ends first gives way to a new one.
GRANTS_MAX: Final = 10_000


@final
class TokenRights:
    """Holds the grants of a connection; a newer grant for a path replaces the older one."""

    def __init__(self) -> None:
        self._grants: dict[str, TokenGrant] = {}
        # When grants end, the next first; with those that were replaced meanwhile.
        self._ends: list[tuple[Instant, str]] = []
        # Paths whose grants are still to be held against changed rules.
        self._unreviewed: list[str] = []

    def put(self, grant: TokenGrant) -> str | None:
        """Take a grant, in place of an older one for the same path.

        Tells the path on which a right has ended by that: the newer one may grant less, or another
        one had to give way.
        """
        before = self._grants.get(grant.path)
        ended: str | None = None
        if before is not None and not allows(grant.rights, before.rights):
            ended = grant.path
        if before is None and len(self._grants) >= GRANTS_MAX:
            ended = self._drop_first()
        self._grants[grant.path] = grant
        if grant.expires_at != NEVER and (before is None or before.expires_at != grant.expires_at):
            heappush(self._ends, (grant.expires_at, grant.path))
            if len(self._ends) > 2 * len(self._grants) + 16:
                self._ends = sorted(
                    (each.expires_at, each.path)
                    for each in self._grants.values()
                    if each.expires_at != NEVER
                )
        return ended

    def rights(self, path: str, now: Instant) -> Rights:
        """Add up the rights that living grants give on a path."""
        rights = NO_RIGHTS
        for prefix in prefixes(resource_path(path)):
            grant = self._grants.get(prefix)
            if grant is not None and grant.expires_at > now:
                rights |= grant.rights
        return rights

    def allows(self, path: str, wanted: Rights, now: Instant) -> bool:
        """Return whether living grants give all wanted rights on a path."""
        return allows(self.rights(path, now), wanted)

    def expires_at(self, path: str, wanted: Rights) -> Instant:
        """Return when the last grant ends that gives the wanted rights on a path; 0 for none."""
        latest = 0
        for prefix in prefixes(resource_path(path)):
            grant = self._grants.get(prefix)
            if grant is not None and allows(grant.rights, wanted):
                latest = max(latest, grant.expires_at)
        return latest

    @property
    def is_empty(self) -> bool:
        """Tell whether nothing is granted."""
        return not self._grants

    def next_expiry(self) -> Instant | None:
        """Return the instant at which the next grant ends, or None while none will."""
        ends = self._ends
        while ends and not self._ends_then(ends[0]):
            heappop(ends)
        return ends[0][0] if ends else None

    def expire(self, now: Instant, most: int = GRANTS_MAX) -> list[TokenGrant]:
        """Drop the grants whose time is over, so many at most, and return them, for the links that
        lived on them."""
        ended: list[TokenGrant] = []
        next_expiry = self.next_expiry()
        while next_expiry is not None and next_expiry <= now and len(ended) < most:
            ended.append(self._grants.pop(heappop(self._ends)[1]))
            next_expiry = self.next_expiry()
        return ended

    def begin_review(self) -> int:
        """Have all grants of now reviewed, because rules were changed; return how many there
        are."""
        self._unreviewed = list(self._grants)
        return len(self._unreviewed)

    def review(self, keys: KeyRing, count: int) -> list[TokenGrant]:
        """Hold so many grants against the rules of now; return those that give less than they
        did."""
        lessened: list[TokenGrant] = []
        for _ in range(min(count, len(self._unreviewed))):
            path = self._unreviewed.pop()
            grant = self._grants.get(path)
            if grant is None:
                continue
            rights = keys.current_rights(grant)
            if rights == grant.rights:
                continue
            if not allows(rights, grant.rights):
                lessened.append(grant)
            if rights == NO_RIGHTS:
                del self._grants[path]
            else:
                self._grants[path] = TokenGrant(
                    path, rights, grant.expires_at, grant.rule_name, grant.proof
                )
        return lessened

    def _ends_then(self, end: tuple[Instant, str]) -> bool:
        grant = self._grants.get(end[1])
        return grant is not None and grant.expires_at == end[0]

    def _drop_first(self) -> str | None:
        """Make room; return the path of the grant that is gone, if there was one that ends."""
        if self.next_expiry() is None:
            return None
        path = heappop(self._ends)[1]
        del self._grants[path]
        return path
