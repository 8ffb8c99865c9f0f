"""The key ring: all authorization rules of a namespace, and the check of what clients present."""

import hmac
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, final

from peeklock.auth import refusal
from peeklock.auth.issuer import WebProof, WebToken, WebTokens
from peeklock.auth.refusal import AuthRefusal
from peeklock.auth.rights import NO_RIGHTS, AuthorizationRule, Rights
from peeklock.auth.sas import (
    ParsedSasToken,
    covers,
    is_jwt,
    names_its_host,
    parse_sas,
    prefixes,
    resource_path,
    signed_path,
    web_text,
)
from peeklock.clock import Instant

# When a grant ends that has no end: an instant that no clock will reach.
NEVER: Final = 1 << 62
# Tokens that were found good: HTTP clients show theirs with every request. Longer ones are not
# remembered, so that the memory for them is bounded.
_REMEMBERED_MAX: Final = 256
_REMEMBERED_LENGTH_MAX: Final = 2_048
_NO_KEY: Final = "there is no such rule"


@final
@dataclass(frozen=True, slots=True)
class Proof:
    """The key that a client has shown or signed with, and where its rule stands."""

    rule_path: str
    rule_name: str
    key: str = field(repr=False)


@final
@dataclass(frozen=True, slots=True)
class TokenGrant:
    """Rights on a path and everything below it, until an instant or until the key is no more."""

    path: str
    rights: Rights
    expires_at: Instant
    rule_name: str
    proof: Proof | WebProof | None = field(default=None, compare=False)


@final
@dataclass(frozen=True, slots=True)
class _Good:
    """What a token is for, until when, what it grants and by which key; all of it was checked."""

    resource: str
    expires_at: Instant
    rights: Rights
    proof: Proof


class KeyRing:
    """Knows the rules of the namespace and of each entity, and turns credentials into grants."""

    def __init__(
        self,
        namespace_rules: Sequence[AuthorizationRule],
        is_host: Callable[[str], bool] | None = None,
    ) -> None:
        """`is_host` tells of a path whether it begins with a host that this broker answers to, and
        not with an entity: tokens may be made for a host without a scheme."""
        self._is_host: Final = is_host or _is_no_host
        # The namespace is the path that is a prefix of all others.
        self._rules: dict[str, tuple[AuthorizationRule, ...]] = {}
        # At which paths there is a rule of a name: thousands of entities may have rules.
        self._named: dict[str, dict[str, None]] = {}
        # Only what was signed with one of our keys gets in here, so that nobody else can fill it.
        self._remembered: dict[str, _Good] = {}
        self._watchers: list[Callable[[], None]] = []
        self._web: WebTokens | None = None
        self._set("", namespace_rules)

    def watch(self, changed: Callable[[], None]) -> None:
        """Call back after each change of rules: what was granted may be good no more."""
        self._watchers.append(changed)

    @property
    def namespace_rules(self) -> tuple[AuthorizationRule, ...]:
        """The rules of the namespace itself."""
        return self._rules.get("", ())

    def set_namespace_rules(self, rules: Sequence[AuthorizationRule]) -> None:
        """Replace the rules of the namespace itself."""
        self._change("", rules)

    def set_entity_rules(self, path: str, rules: Sequence[AuthorizationRule]) -> None:
        """Replace the rules of an entity; none at all forgets the entity."""
        key = resource_path(path)
        if not key:
            raise ValueError("an entity has a path; the namespace's rules are given at the start")
        self._change(key, rules)

    def believe(self, web: WebTokens | None) -> None:
        """Let somebody check JSON web tokens; also after whom it believes has changed."""
        self._web = web
        self.issuers_changed()

    def issuers_changed(self) -> None:
        """Have what was granted to JSON web tokens looked at again: a key may be gone."""
        for changed in self._watchers:
            changed()

    def believes(self, token: str) -> bool:
        """Return whether a JSON web token is from an issuer of ours; it may have expired since."""
        web = self._web
        return web is not None and isinstance(web.read(web_text(token), None), WebToken)

    def _change(self, path: str, rules: Sequence[AuthorizationRule]) -> None:
        if self._rules.get(path, ()) == tuple(rules):
            return
        self._remembered.clear()
        self._set(path, rules)
        for changed in self._watchers:
            changed()

    def _set(self, path: str, rules: Sequence[AuthorizationRule]) -> None:
        for rule in self._rules.pop(path, ()):
            paths = self._named.get(rule.name, {})
            paths.pop(path, None)
            if not paths:
                self._named.pop(rule.name, None)
        if rules:
            self._rules[path] = tuple(rules)
        for rule in rules:
            self._named.setdefault(rule.name, {})[path] = None

    def current_rights(self, grant: TokenGrant) -> Rights:
        """Return what the key behind a grant gives by the rules of now: nothing once it is gone."""
        proof = grant.proof
        if proof is None:
            return grant.rights
        if isinstance(proof, WebProof):
            web = self._web
            return NO_RIGHTS if web is None else web.current_rights(proof)
        for rule in self._rules.get(proof.rule_path, ()):
            if rule.name == proof.rule_name and _key_among(rule, proof.key):
                return rule.rights
        return NO_RIGHTS

    def verify(
        self,
        token: str,
        audience: str,
        now: Instant,
        *,
        is_exposed: bool = False,
    ) -> TokenGrant | AuthRefusal:
        """Check a token for an audience, which may be a URI or a bare path; the grant is for it.

        A shared access signature may come as others can read it, because it is for one place; a web
        token is good at every service of its audience.
        """
        if is_jwt(token):
            return self._verify_web(web_text(token), audience, now, is_exposed)
        good = self._good(token)
        if isinstance(good, AuthRefusal):
            return good
        # What follows is told only to somebody who holds the key.
        if good.expires_at <= now:
            return refusal.expired(good.expires_at)
        path = resource_path(audience)
        if not covers(good.resource, path):
            return refusal.invalid_audience(good.resource, path)
        return TokenGrant(path, good.rights, good.expires_at, good.proof.rule_name, good.proof)

    def _verify_web(
        self, token: str, audience: str, now: Instant, is_exposed: bool
    ) -> TokenGrant | AuthRefusal:
        """Check a JSON web token: its roles say what it gives, on the whole namespace."""
        web = self._web
        found = refusal.unsupported_jwt() if web is None else web.read(token, now)
        if isinstance(found, AuthRefusal):
            return found
        if is_exposed and not found.allows_plain:
            return refusal.exposed()
        if found.rights == NO_RIGHTS:
            # A connection must not count as known for a token that opens nothing.
            return refusal.without_role(found.subject)
        path = resource_path(audience)
        return TokenGrant(path, found.rights, found.expires_at, found.subject, found.proof)

    def _good(self, token: str) -> _Good | AuthRefusal:
        """Check who signed a token; one that was found good is good until the rules change."""
        remembered = self._remembered.get(token)
        if remembered is not None:
            return remembered
        parsed = parse_sas(token)
        if isinstance(parsed, AuthRefusal):
            return parsed
        resource = signed_path(parsed.resource, self._is_host)
        found = self._signer(parsed, resource)
        if found is None:
            return refusal.invalid_signature()
        rule, proof = found
        good = _Good(resource, parsed.expires_at, rule.rights, proof)
        # What a token means that may begin with a host changes with the names of entities.
        if names_its_host(parsed.resource) and len(token) <= _REMEMBERED_LENGTH_MAX:
            if len(self._remembered) >= _REMEMBERED_MAX:
                del self._remembered[next(iter(self._remembered))]
            self._remembered[token] = good
        return good

    def has_signed(self, token: ParsedSasToken) -> bool:
        """Return whether a rule of these made the token; it may have expired since."""
        return self._signer(token, signed_path(token.resource, self._is_host)) is not None

    def verify_plain(self, rule_name: str, key: str) -> list[TokenGrant] | AuthRefusal:
        """Check a rule's name and key; the grants are for the places whose rule it is."""
        grants: list[TokenGrant] = []
        for path in self._named.get(rule_name, ()):
            for rule in self._rules[path]:
                if rule.name == rule_name and _key_among(rule, key):
                    proof = Proof(path, rule_name, key)
                    grants.append(TokenGrant(path, rule.rights, NEVER, rule_name, proof))
        return grants or refusal.invalid_key()

    def _signer(
        self, token: ParsedSasToken, resource: str
    ) -> tuple[AuthorizationRule, Proof] | None:
        """Find who signed a token; a rule signs for its own place and below."""
        paths = self._named.get(token.rule_name)
        if paths is None:
            # As much work as for a name that exists: nobody should hear the difference.
            token.is_signed_with(_NO_KEY)
            return None
        for path in prefixes(resource):
            if path in paths:
                for rule in self._rules[path]:
                    if rule.name == token.rule_name:
                        for key in rule.signing_keys():
                            if token.is_signed_with(key):
                                return rule, Proof(path, rule.name, key)
        return None


def _is_no_host(_path: str) -> bool:
    return False


def _key_among(rule: AuthorizationRule, key: str) -> bool:
    return any(_equal(key, known) for known in rule.signing_keys())


def _equal(given: str, known: str) -> bool:
    return hmac.compare_digest(given.encode(), known.encode())
