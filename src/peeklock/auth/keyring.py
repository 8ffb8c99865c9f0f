"""The key ring: all authorization rules of a namespace, and the check of what clients present."""

import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

from peeklock.auth import refusal
from peeklock.auth.refusal import AuthRefusal
from peeklock.auth.rights import AuthorizationRule, Rights
from peeklock.auth.sas import SasToken, covers, is_jwt, parse_sas, resource_path
from peeklock.clock import Instant

# When a grant ends that has no end: an instant that no clock will reach.
NEVER: Final = 1 << 62
# Tokens that were found good: HTTP clients show theirs with every request. Longer ones are not
# remembered, so that the memory for them is bounded.
_REMEMBERED_MAX: Final = 256
_REMEMBERED_LENGTH_MAX: Final = 2_048


@final
@dataclass(slots=True, init=False)
class Grant:
    """Rights on a path and everything below it, until an instant."""

    path: Final[str]
    rights: Final[Rights]
    expires_at: Final[Instant]
    rule_name: Final[str]

    def __init__(self, path: str, rights: Rights, expires_at: Instant, rule_name: str) -> None:
        self.path = path
        self.rights = rights
        self.expires_at = expires_at
        self.rule_name = rule_name


@final
@dataclass(slots=True, init=False)
class _Good:
    """What a token is for, until when, and who signed it; all of it was checked."""

    resource: Final[str]
    expires_at: Final[Instant]
    signer: Final[AuthorizationRule]

    def __init__(self, resource: str, expires_at: Instant, signer: AuthorizationRule) -> None:
        self.resource = resource
        self.expires_at = expires_at
        self.signer = signer


class KeyRing:
    """Knows the rules of the namespace and of each entity, and turns credentials into grants."""

    __slots__ = ("_remembered", "_rules")

    def __init__(self, namespace_rules: Sequence[AuthorizationRule]) -> None:
        # The namespace is the path that is a prefix of all others.
        self._rules: dict[str, tuple[AuthorizationRule, ...]] = {"": tuple(namespace_rules)}
        # Only what was signed with one of our keys gets in here, so that nobody else can fill it.
        self._remembered: dict[str, _Good] = {}

    def set_entity_rules(self, path: str, rules: Sequence[AuthorizationRule]) -> None:
        """Replace the rules of an entity; none at all forgets the entity."""
        key = resource_path(path)
        if not key:
            raise ValueError("an entity has a path; the namespace's rules are given at the start")
        if self._rules.get(key, ()) == tuple(rules):
            return
        self._remembered.clear()
        if rules:
            self._rules[key] = tuple(rules)
        else:
            self._rules.pop(key, None)

    def verify(
        self, token: str, audience: str, now: Instant, host: str = ""
    ) -> Grant | AuthRefusal:
        """Check a token for an audience, which may be a URI or a bare path; the grant is for it.

        Some clients name the namespace by its host alone in some tokens; where a host is given,
        such a token is taken for what it means.
        """
        good = self._good(token, host)
        if isinstance(good, AuthRefusal):
            return good
        # What follows is told only to somebody who holds the key.
        if good.expires_at <= now:
            return refusal.expired(good.expires_at)
        path = resource_path(audience)
        if not covers(good.resource, path):
            return refusal.invalid_audience(good.resource, path)
        return Grant(path, good.signer.rights, good.expires_at, good.signer.name)

    def _good(self, token: str, host: str) -> _Good | AuthRefusal:
        """Check who signed a token; one that was found good is good until the rules change."""
        remembered = None if host else self._remembered.get(token)
        if remembered is not None:
            return remembered
        if is_jwt(token):
            return refusal.unsupported_jwt()
        parsed = parse_sas(token)
        if isinstance(parsed, AuthRefusal):
            return parsed
        resource = resource_path(parsed.resource)
        if host and resource == host.lower():
            resource = ""
        signer = self._signer(parsed, resource)
        if isinstance(signer, AuthRefusal):
            return signer
        good = _Good(resource, parsed.expires_at, signer)
        # What a token means together with a host it does not mean alone.
        if not host and len(token) <= _REMEMBERED_LENGTH_MAX:
            if len(self._remembered) >= _REMEMBERED_MAX:
                del self._remembered[next(iter(self._remembered))]
            self._remembered[token] = good
        return good

    def knows(self, rule_name: str) -> bool:
        """Tell whether a rule of this name is here, wherever it holds."""
        return any(rule.name == rule_name for rules in self._rules.values() for rule in rules)

    def has_signed(self, token: SasToken) -> bool:
        """Tell whether a rule of these made the token; it may have expired since."""
        signer = self._signer(token, resource_path(token.resource))
        return isinstance(signer, AuthorizationRule)

    def verify_plain(self, rule_name: str, key: str) -> list[Grant] | AuthRefusal:
        """Check a rule's name and key; the grants are for the places whose rule it is."""
        grants: list[Grant] = []
        is_known = False
        for path, rules in self._rules.items():
            for rule in rules:
                if rule.name == rule_name:
                    is_known = True
                    if any(_equal(key, known) for known in rule.signing_keys()):
                        grants.append(Grant(path, rule.rights, NEVER, rule.name))
        if grants:
            return grants
        return refusal.invalid_key(rule_name) if is_known else refusal.unknown_rule(rule_name)

    def _signer(self, token: SasToken, resource: str) -> AuthorizationRule | AuthRefusal:
        candidates = self._named(token.rule_name, resource)
        if not candidates:
            return refusal.unknown_rule(token.rule_name)
        for rule in candidates:
            if any(map(token.is_signed_with, rule.signing_keys())):
                return rule
        return refusal.invalid_signature()

    def _named(self, rule_name: str, resource: str) -> list[AuthorizationRule]:
        # A rule signs for its own place and below: an entity's rule makes no namespace token.
        return [
            rule
            for path, rules in self._rules.items()
            if covers(path, resource)
            for rule in rules
            if rule.name == rule_name
        ]


def _equal(given: str, known: str) -> bool:
    return hmac.compare_digest(given.encode(), known.encode())
