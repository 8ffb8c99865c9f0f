"""Texts and documents of peers and of operators: tokens, rules, ATOM, configuration."""

from decimal import Decimal
from typing import Final
from uuid import UUID

from peeklock.auth.keyring import KeyRing
from peeklock.auth.rights import development_rule
from peeklock.auth.sas import generate_sas, prefixes, resource_path
from peeklock.configuration.arm import parse_template
from peeklock.configuration.content import ConfigurationError
from peeklock.configuration.file import parse_configuration
from peeklock.entity.rules.action import SqlAction
from peeklock.entity.rules.errors import FilterError, RuleError
from peeklock.entity.rules.filter import SqlFilter
from peeklock.entity.rules.values import InstantValue, PropertyBag, Value
from peeklock.gateway.http.admin.atom import Asked
from peeklock.gateway.http.admin.queues import read_queue
from peeklock.gateway.http.admin.reading import Content, MalformedEntry, read_content
from peeklock.gateway.http.admin.rules import read_rule
from peeklock.gateway.http.admin.subscriptions import read_first_rules, read_subscription
from peeklock.gateway.http.admin.topics import read_topic
from peeklock.gateway.http.request import HttpRequest

USER: Final[dict[str, Value]] = {
    "a": 1,
    "b": "text",
    "c": 2.5,
    "d": None,
    "e": True,
    "f": b"\x01",
    "g": Decimal("1.5"),
    "h": UUID(int=5),
    "i": InstantValue(17),
    "large": (1 << 63) - 1,
}
SYSTEM: Final[dict[str, Value]] = {"MessageId": "m", "Label": "tea", "SequenceNumber": 9}


def sas(data: bytes) -> str:
    """A token, and what it is shown for."""
    text, _, audience = data.decode("utf-8", "replace").partition("\n")
    ring = KeyRing([development_rule()])
    with_hosts = KeyRing([development_rule()], lambda path: path.partition("/")[0] == "h")
    told = [
        repr(ring.verify(text, audience, 1000)),
        repr(with_hosts.verify(text, audience, 1000)),
    ]
    path = resource_path(audience)
    told += [path, repr(prefixes(path))]
    name, _, key = audience.partition("=")
    told.append(repr(ring.verify_plain(name, key)))
    rule = development_rule()
    token = generate_sas(audience, rule.name, rule.primary_key, 10**15)
    told.append(repr(ring.verify(token, audience, 1000)))
    return "\n".join(told)


def rules(data: bytes) -> str:
    """A filter and an action, applied to a message that has something of everything."""
    text = data.decode("utf-8", "replace")
    parameters: dict[str, Value] = {"@p": 3, "@q": "te%"}
    return "\n".join([_filtered(text, parameters), _changed(text, parameters)])


def _filtered(text: str, parameters: dict[str, Value]) -> str:
    try:
        found = SqlFilter(text, parameters)
        return f"{found.evaluate(_bag())} {found.constant} {found.can_fail} {found.guard!r}"
    except (RuleError, FilterError) as error:
        return repr(error)


def _changed(text: str, parameters: dict[str, Value]) -> str:
    try:
        return repr(SqlAction(text, parameters).apply(_bag()))
    except (RuleError, FilterError) as error:
        return repr(error)


def _bag() -> PropertyBag:
    return PropertyBag(dict(USER), dict(SYSTEM), lambda: 4)


def atom(data: bytes) -> str:
    """A description in an ATOM entry, read as everything that it could be."""
    try:
        content = read_content(data)
    except MalformedEntry as error:
        return str(error)
    asked = Asked(HttpRequest("PUT", "/q?api-version=2021-05"), "ns")
    told: list[str] = []
    for kind in ("queue", "topic", "subscription", "rules", "rule"):
        try:
            told.append(_read(kind, content, asked))
        except MalformedEntry as error:
            told.append(str(error))
    return "\n".join(told)


def _read(kind: str, content: Content, asked: Asked) -> str:
    if kind == "queue":
        return repr(read_queue(content, "q", None, asked))
    if kind == "topic":
        return repr(read_topic(content, "t", None, asked))
    if kind == "subscription":
        return repr(read_subscription(content, "t", "s", None))
    if kind == "rules":
        return repr(read_first_rules(content))
    return repr(read_rule(content, "r"))


def configuration(data: bytes) -> str:
    """A configuration file, and a deployment template."""
    text = data.decode("utf-8", "replace")
    told: list[str] = []
    try:
        told.append(repr(parse_configuration(text, "file")))
    except ConfigurationError as error:
        told.append(str(error))
    try:
        told.append(repr(parse_template(text, "file").namespace))
    except ConfigurationError as error:
        told.append(str(error))
    return "\n".join(told)
