"""Everything that somebody may show, and what it should be worth (protocol 2.3).

What is expected stands here in the words of the protocol; nothing of it is asked of the code.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Any

from peeklock.auth.rights import LISTEN, MANAGE, SEND, AuthorizationRule
from peeklock.auth.sas import generate_sas
from tests.gateway.issuer import LocalIssuer

HOST = "localhost"
# Whom the namespace believes, and somebody who says to be the same.
LOCAL, STRANGER = LocalIssuer(), LocalIssuer()
HOUR_MS = 3_600_000

# The rights by their names, and all ways to combine them; a rule may also give none.
RIGHTS = ("Send", "Listen", "Manage")
_FLAGS = {"Send": SEND, "Listen": LISTEN, "Manage": MANAGE}
COMBINATIONS = tuple(
    frozenset(chosen) for count in range(4) for chosen in combinations(RIGHTS, count)
)

# Where the rule stands: on the namespace, on the queue or topic that is asked for, on another.
NAMESPACE = "namespace"
ENTITY = "entity"
OTHER = "other"
# What the token is made for: one of these, or exactly what is asked for.
HERE = "here"

# The entity that is never the one that is asked for.
OTHER_PATH = "other"

SOUND = ""
WRONG_KEY = "wrong key"
UNKNOWN_RULE = "unknown rule"
EXPIRED = "expired"
CUT = "cut off"
CHANGED = "made for something else than was signed"
WEB_TOKEN = "JSON web token"
EMPTY = "empty"
NO_TOKEN = "no token"
OTHER_AUDIENCE = "for another audience"
_DEFECTS = (WRONG_KEY, UNKNOWN_RULE, EXPIRED, CUT, CHANGED, WEB_TOKEN, EMPTY, NO_TOKEN)


@dataclass(frozen=True)
class Credential:
    """A token: by which rule, with which rights, for which resource, and what is wrong with it."""

    rule_at: str
    rights: frozenset[str]
    made_for: str
    defect: str = SOUND
    # From the issuer that the namespace believes, with roles in place of a rule.
    is_web: bool = False

    def __str__(self) -> str:
        names = "+".join(sorted(self.rights)) or "nothing"
        defect = f", {self.defect}" if self.defect else ""
        kind = "by roles " if self.is_web else ""
        return f"{kind}{names} on the {self.rule_at} for {self.made_for}{defect}"

    @property
    def rule(self) -> str:
        return rule_name(self.rule_at, self.rights)

    def token(self, home: str, here: str, now: int) -> str | None:
        """Make it, for a thing that belongs to an entity; None is to show nothing at all."""
        if self.is_web:
            return self._web_token(now)
        if self.defect in (NO_TOKEN, EMPTY):
            return None if self.defect == NO_TOKEN else ""
        if self.defect == WEB_TOKEN:
            return "eyJhbGciOiJub25lIn0.eyJzdWIiOiJtZSJ9.c2lnbmF0dXJl"
        place = {NAMESPACE: "", ENTITY: home, OTHER: OTHER_PATH}[self.rule_at]
        path = {NAMESPACE: "", ENTITY: home, OTHER: OTHER_PATH, HERE: here}[self.made_for]
        rule = "nobody" if self.defect == UNKNOWN_RULE else self.rule
        key = "not the key" if self.defect == WRONG_KEY else key_of(place, self.rule)
        life_ms = -1000 if self.defect == EXPIRED else HOUR_MS
        text = generate_sas(f"sb://{HOST}/{path}", rule, key, now + life_ms)
        if self.defect == CUT:
            return text[: len(text) // 2]
        return text.replace("sr=sb", "sr=SB") if self.defect == CHANGED else text

    def _web_token(self, now: int) -> str:
        by = STRANGER if self.defect == WRONG_KEY else LOCAL
        claims: dict[str, Any] = {
            EXPIRED: {"exp": now // 1000 - 120},
            OTHER_AUDIENCE: {"aud": "https://storage.azure.com"},
            UNKNOWN_RULE: {"iss": "https://nobody.example/"},
        }
        text = by.token(now, *self.rights, **claims.get(self.defect, {}))
        if self.defect == CUT:
            return text[: len(text) // 2]
        if self.defect == CHANGED:
            head, _, sign = text.split(".")
            return f"{head}.{LOCAL.token(now + 1000, *RIGHTS).split('.')[1]}.{sign}"
        return text

    def is_good(self) -> bool:
        """Whether it opens the entity: a rule signs for its own place and all below it, and a token
        is good for what it was made for and all below that. One of an issuer without any role is
        good for nothing."""
        if self.is_web and not self.rights:
            return False
        opened = {NAMESPACE: (NAMESPACE, ENTITY, HERE), ENTITY: (ENTITY, HERE), OTHER: ()}
        return self.defect == SOUND and self.made_for in opened[self.rule_at]

    def gives(self) -> frozenset[str]:
        """The rights on the entity; who manages may do everything."""
        if not self.is_good():
            return frozenset()
        return frozenset(RIGHTS) if "Manage" in self.rights else self.rights

    def is_good_for_all(self) -> bool:
        """Whether it opens what belongs to the namespace and to no entity."""
        return self.is_good() and self.rule_at == NAMESPACE and self.made_for != ENTITY

    def gives_on_all(self) -> frozenset[str]:
        """The rights on that."""
        return self.gives() if self.is_good_for_all() else frozenset()


def every_credential() -> list[Credential]:
    """All of them: each rule for each resource, and all that can be wrong with the best ones."""
    sound = [
        each
        for rule_at in (NAMESPACE, ENTITY, OTHER)
        for made_for in (NAMESPACE, ENTITY, OTHER, HERE)
        for rights in COMBINATIONS
        for each in [Credential(rule_at, rights, made_for)]
        # Where a token opens nothing the single rights are enough to see that.
        if each.is_good() or len(rights) < 2
    ]
    everything = frozenset(RIGHTS)
    broken = [
        Credential(place, everything, place, defect)
        for place in (NAMESPACE, ENTITY)
        for defect in _DEFECTS
    ]
    web = [Credential(NAMESPACE, rights, NAMESPACE, is_web=True) for rights in COMBINATIONS]
    web += [
        Credential(NAMESPACE, everything, NAMESPACE, defect, is_web=True)
        for defect in (WRONG_KEY, UNKNOWN_RULE, EXPIRED, CUT, CHANGED, OTHER_AUDIENCE)
    ]
    return sound + broken + web


CREDENTIALS = every_credential()


def rules_at(place: str, path: str) -> list[AuthorizationRule]:
    """The rules of the namespace (the path '') or of an entity: one for each combination."""
    made = []
    for rights in COMBINATIONS:
        name = rule_name(place, rights)
        flags = sum(_FLAGS[right] for right in rights)
        made.append(AuthorizationRule(name, key_of(path, name), rights=flags))
    return made


def rule_name(place: str, rights: frozenset[str]) -> str:
    return f"{place}-{'-'.join(sorted(rights)) or 'nothing'}"


def key_of(path: str, rule: str) -> str:
    """Every rule of every entity has a key of its own."""
    return f"the key of {rule} at '{path}'"
