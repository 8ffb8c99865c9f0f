"""Authorization rules within the descriptions of queues and topics (protocol 9.9)."""

import base64
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from peeklock.auth.rights import (
    ALL_RIGHTS,
    MANAGE,
    NO_RIGHTS,
    AuthorizationRule,
    rights_from_names,
    rights_names,
)
from peeklock.gateway.http.admin.reading import Content, MalformedEntry
from peeklock.gateway.http.admin.writing import XmlWriter
from peeklock.gateway.identifiers import RandomSource

_TIMES: Final = ("CreatedTime", "ModifiedTime")
_RULES_MAX: Final = 12
_NAME_LENGTH_MAX: Final = 256
_KEY_LENGTH_MAX: Final = 256


def read_keys(
    content: Content, known: Sequence[AuthorizationRule], random_source: RandomSource
) -> tuple[AuthorizationRule, ...]:
    """Read the rules of an entity; where it says nothing about them, they stay."""
    given = content.child("AuthorizationRules")
    if given is None:
        return tuple(known)
    entries = given.children("AuthorizationRule")
    if len(entries) > _RULES_MAX:
        raise MalformedEntry(
            f"AuthorizationRules has {len(entries)} rules, at most {_RULES_MAX} go."
        )
    rules: dict[str, AuthorizationRule] = {}
    for entry in entries:
        rule = _read_key(entry, random_source)
        if rule.name in rules:
            raise MalformedEntry(f"The authorization rule '{rule.name}' is given twice.")
        rules[rule.name] = rule
    return tuple(rules.values())


def _read_key(entry: Content, random_source: RandomSource) -> AuthorizationRule:
    name = entry.text("KeyName") or ""
    if not 0 < len(name) <= _NAME_LENGTH_MAX:
        raise MalformedEntry(f"The KeyName of a rule must have 1 to {_NAME_LENGTH_MAX} characters.")
    keys = [entry.text(word) or "" for word in ("PrimaryKey", "SecondaryKey")]
    if any(len(key) > _KEY_LENGTH_MAX for key in keys):
        raise MalformedEntry(
            f"A key of the rule '{name}' has more than {_KEY_LENGTH_MAX} characters."
        )
    primary, secondary = (key or _new_key(random_source) for key in keys)
    times = tuple(_read_time(entry, word, name) for word in _TIMES)
    return AuthorizationRule(name, primary, secondary, _read_rights(entry, name), times)


def _read_time(entry: Content, word: str, name: str) -> str:
    """Read when a rule was made or changed: kept as it was sent, and nothing where it was not."""
    text = (entry.text(word) or "").strip()
    try:
        if text:
            datetime.fromisoformat(text)
    except ValueError as error:
        raise MalformedEntry(f"The {word} of the rule '{name}' is not a dateTime.") from error
    return text


def _read_rights(entry: Content, name: str) -> int:
    listed = entry.child("Rights")
    words = [] if listed is None else [right.value for right in listed.children("AccessRights")]
    try:
        # One by one, because each right that is missing is to be seen as missing.
        held = [rights_from_names([word.strip()]) for word in words]
    except ValueError as error:
        raise MalformedEntry(f"The rule '{name}' has a wrong right: {error}.") from error
    if not held:
        raise MalformedEntry(f"The rule '{name}' gives no rights.")
    rights = NO_RIGHTS
    for each in held:
        rights |= MANAGE if each == ALL_RIGHTS else each
    if rights & MANAGE and rights != ALL_RIGHTS:
        raise MalformedEntry(f"The rule '{name}' has Manage, which needs Send and Listen too.")
    return rights


def _new_key(random_source: RandomSource) -> str:
    """Make a key as the service does: 32 random bytes."""
    raw = b"".join(random_source().to_bytes(8, "big") for _ in range(4))
    return base64.b64encode(raw).decode("ascii")


def write_keys(writer: XmlWriter, keys: Sequence[AuthorizationRule]) -> None:
    """Write the rules of an entity, with the times that they were sent with."""
    inner = XmlWriter()
    for key in keys:
        rule = XmlWriter()
        rule.text("ClaimType", "SharedAccessKey")
        rule.text("ClaimValue", "None")
        rights = XmlWriter()
        for name in reversed(rights_names(key.rights)):
            rights.text("AccessRights", name)
        rule.raw(f"<Rights>{rights.xml()}</Rights>")
        for word, text in zip(_TIMES, key.times, strict=True):
            rule.optional(word, text)
        rule.text("KeyName", key.name)
        rule.text("PrimaryKey", key.primary_key)
        rule.text("SecondaryKey", key.secondary_key)
        inner.raw(
            '<AuthorizationRule i:type="SharedAccessAuthorizationRule">'
            f"{rule.xml()}</AuthorizationRule>"
        )
    writer.raw(f"<AuthorizationRules>{inner.xml()}</AuthorizationRules>")
