"""The documents of the administration API, as a client writes and reads them (protocol 9).

A description is kept under the names and in the types of the configuration file: both come from the
service and agree nearly everywhere, so that commands, import and export speak of one thing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, final
from xml.sax.saxutils import escape, quoteattr

from peeklock.auth.rights import AuthorizationRule, rights_from_names, rights_names

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

QUEUE: Final = "queue"
TOPIC: Final = "topic"
SUBSCRIPTION: Final = "subscription"
RULE: Final = "rule"

_ATOM: Final = "http://www.w3.org/2005/Atom"
_SERVICE_BUS: Final = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"
_INSTANCE: Final = "http://www.w3.org/2001/XMLSchema-instance"
_SCHEMA: Final = "http://www.w3.org/2001/XMLSchema"
_TIMES: Final = ("CreatedTime", "ModifiedTime")
_PAIR: Final = "KeyValueOfstringanyType"

# What the service does not have; our broker shows it where it is not as in the service.
_OURS: Final[dict[str, type]] = {"PartitionCount": int, "UnlockOnDisconnect": bool}
# What is the owner's to choose, in the service's order.
_TYPES: Final[dict[str, dict[str, type]]] = {
    QUEUE: {
        "LockDuration": str,
        "MaxSizeInMegabytes": int,
        "RequiresDuplicateDetection": bool,
        "RequiresSession": bool,
        "DefaultMessageTimeToLive": str,
        "DeadLetteringOnMessageExpiration": bool,
        "DuplicateDetectionHistoryTimeWindow": str,
        "MaxDeliveryCount": int,
        "EnableBatchedOperations": bool,
        "Status": str,
        "ForwardTo": str,
        "AutoDeleteOnIdle": str,
        "EnablePartitioning": bool,
        "UserMetadata": str,
        "ForwardDeadLetteredMessagesTo": str,
        "MaxMessageSizeInKilobytes": int,
        **_OURS,
    },
    TOPIC: {
        "DefaultMessageTimeToLive": str,
        "MaxSizeInMegabytes": int,
        "RequiresDuplicateDetection": bool,
        "DuplicateDetectionHistoryTimeWindow": str,
        "EnableBatchedOperations": bool,
        "FilteringMessagesBeforePublishing": bool,
        "Status": str,
        "AutoDeleteOnIdle": str,
        "EnablePartitioning": bool,
        "UserMetadata": str,
        "MaxMessageSizeInKilobytes": int,
        "PartitionCount": int,
    },
    SUBSCRIPTION: {
        "LockDuration": str,
        "RequiresSession": bool,
        "DefaultMessageTimeToLive": str,
        "DeadLetteringOnMessageExpiration": bool,
        "DeadLetteringOnFilterEvaluationExceptions": bool,
        "MaxDeliveryCount": int,
        "EnableBatchedOperations": bool,
        "Status": str,
        "ForwardTo": str,
        "UserMetadata": str,
        "ForwardDeadLetteredMessagesTo": str,
        "AutoDeleteOnIdle": str,
        "UnlockOnDisconnect": bool,
    },
}
# What the service has and this broker only remembers: neither files nor commands speak of it.
_OTHERS: Final[dict[str, dict[str, type]]] = {
    QUEUE: {"EnableExpress": bool},
    TOPIC: {"SupportOrdering": bool, "EnableExpress": bool},
    SUBSCRIPTION: {},
}
# What only the broker can know.
_RUNTIME: Final[dict[str, type]] = {
    "EntityAvailabilityStatus": str,
    "SizeInBytes": int,
    "MessageCount": int,
    "SubscriptionCount": int,
    "SqlFilterCount": int,
    "CorrelationFilterCount": int,
    "CreatedAt": str,
    "UpdatedAt": str,
    "AccessedAt": str,
}
# What a correlation filter may ask for besides application properties.
CORRELATION_FIELDS: Final = (
    "CorrelationId",
    "MessageId",
    "To",
    "ReplyTo",
    "Label",
    "SessionId",
    "ReplyToSessionId",
    "ContentType",
)
_NAMES: Final = {
    QUEUE: "QueueDescription",
    TOPIC: "TopicDescription",
    SUBSCRIPTION: "SubscriptionDescription",
    RULE: "RuleDescription",
}
_KINDS: Final = {name: kind for kind, name in _NAMES.items()}


class Unreadable(Exception):
    """An answer that is not what a broker answers."""


@final
@dataclass(frozen=True, slots=True)
class Description:
    """An entity or a rule: what its owner chose, and what the broker knows about it."""

    kind: str
    name: str
    values: dict[str, Any]
    runtime: dict[str, Any] = field(default_factory=dict)
    keys: tuple[AuthorizationRule, ...] = ()
    # Whether nothing is said of keys when it is written: those that are there stay.
    is_silent_on_keys: bool = field(default=False, kw_only=True)
    # What neither files nor commands speak of.
    others: dict[str, Any] = field(default_factory=dict)


@final
@dataclass(frozen=True, slots=True)
class Feed:
    """A page of a list, and whether there is another one."""

    entries: list[Description]
    has_more: bool


# --- writing


def write_entry(description: Description, first_rule: Description | None = None) -> bytes:
    """Write the document that makes or changes something; a new subscription may get a rule."""
    kind = description.kind
    if kind == RULE:
        inner = _rule_xml(description)
    else:
        inner = _values_xml(_TYPES[kind], description.values)
        inner += _values_xml(_OTHERS[kind], description.others)
        if first_rule is not None:
            inner += f"<DefaultRuleDescription>{_rule_xml(first_rule)}</DefaultRuleDescription>"
        if kind != SUBSCRIPTION and not description.is_silent_on_keys:
            inner += _keys_xml(description.keys)
    name = _NAMES[kind]
    return (
        f'<entry xmlns="{_ATOM}"><content type="application/xml">'
        f'<{name} xmlns="{_SERVICE_BUS}" xmlns:i="{_INSTANCE}">{inner}</{name}>'
        "</content></entry>"
    ).encode()


def _values_xml(types: Mapping[str, type], values: Mapping[str, Any]) -> str:
    written = []
    for name in types:
        if values.get(name) is not None:
            written.append(_element(name, values[name]))
    return "".join(written)


def _keys_xml(keys: Sequence[AuthorizationRule]) -> str:
    rules = []
    for key in keys:
        rights = "".join(_element("AccessRights", name) for name in rights_names(key.rights))
        # A key that is empty is made by the broker.
        secrets = [("PrimaryKey", key.primary_key), ("SecondaryKey", key.secondary_key)]
        rules.append(
            '<AuthorizationRule i:type="SharedAccessAuthorizationRule">'
            "<ClaimType>SharedAccessKey</ClaimType><ClaimValue>None</ClaimValue>"
            f"<Rights>{rights}</Rights>"
            + "".join(_element(*pair) for pair in zip(_TIMES, key.times, strict=True) if pair[1])
            + _element("KeyName", key.name)
            + "".join(_element(name, secret) for name, secret in secrets if secret)
            + "</AuthorizationRule>"
        )
    return f"<AuthorizationRules>{''.join(rules)}</AuthorizationRules>"


def _rule_xml(rule: Description) -> str:
    values = rule.values
    kind = str(values["FilterType"])
    if kind == "Correlation":
        asked = values["CorrelationFilter"]
        inner = "".join(_element(name, asked[name]) for name in CORRELATION_FIELDS if name in asked)
        inner += _pairs_xml("Properties", asked.get("Properties", {}))
    else:
        sql = values.get("SqlFilter", {})
        text = {"True": "1=1", "False": "1=0"}.get(kind) or sql["SqlExpression"]
        inner = _element("SqlExpression", text) + _pairs_xml(
            "Parameters", sql.get("Parameters", {})
        )
    action = values.get("Action")
    written = '<Action i:type="EmptyRuleAction"/>'
    if action:
        changes = _element("SqlExpression", action["SqlExpression"])
        changes += _pairs_xml("Parameters", action.get("Parameters", {}))
        written = f'<Action i:type="SqlRuleAction">{changes}</Action>'
    return f'<Filter i:type="{kind}Filter">{inner}</Filter>{written}{_element("Name", rule.name)}'


def _pairs_xml(name: str, pairs: Mapping[str, Any]) -> str:
    if not pairs:
        return ""
    inner = "".join(
        f"<{_PAIR}>{_element('Key', key)}{_value_xml(value)}</{_PAIR}>"
        for key, value in pairs.items()
    )
    return f"<{name}>{inner}</{name}>"


def _value_xml(value: Any) -> str:
    kind, text = _typed(value)
    return f'<Value i:type="d6p1:{kind}" xmlns:d6p1={quoteattr(_SCHEMA)}>{_escaped(text)}</Value>'


def _typed(value: Any) -> tuple[str, str]:
    if isinstance(value, dict):
        # A type that JSON does not have, as it was read.
        return str(value["type"]), str(value["text"])
    if isinstance(value, bool):
        return "boolean", _text(value)
    if isinstance(value, int):
        return "long", str(value)
    return ("double", repr(value)) if isinstance(value, float) else ("string", str(value))


def _element(name: str, value: Any) -> str:
    return f"<{name}>{_escaped(_text(value))}</{name}>"


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _escaped(text: str) -> str:
    return escape(text, {"\r": "&#13;"})


# --- reading


def read_answer(content: bytes) -> Description | Feed:
    """Read an entry or a feed."""
    root = _parse(content)
    if _local(root) == "entry":
        return _read_entry(root)
    if _local(root) != "feed":
        raise Unreadable(f"the answer is a '{_local(root)}'")
    entries = [_read_entry(child) for child in root if _local(child) == "entry"]
    links = [child.get("rel") for child in root if _local(child) == "link"]
    return Feed(entries, "next" in links)


def read_error(content: bytes) -> str:
    """Read why something was not done; empty where it is not said."""
    try:
        root = _parse(content)
    except Unreadable:
        return ""
    return _child_text(root, "Detail") or ""


def read_namespace(content: bytes) -> dict[str, str]:
    """Read what is told of the namespace, its `Name` among it."""
    for element in _parse(content).iter():
        if _local(element) == "NamespaceInfo":
            return {_local(child): child.text or "" for child in element}
    raise Unreadable("the answer does not describe a namespace")


def _read_entry(entry: "Element") -> Description:
    title = _child_text(entry, "title") or ""
    content = _child(entry, "content")
    if content is None or len(content) != 1 or _local(content[0]) not in _KINDS:
        raise Unreadable("an entry of the answer describes nothing that is known")
    element = content[0]
    kind = _KINDS[_local(element)]
    try:
        if kind == RULE:
            return Description(RULE, title, _read_rule(element), _read_typed(element, _RUNTIME))
        values = _read_typed(element, _TYPES[kind])
        runtime = _read_typed(element, _RUNTIME) | _read_counts(element)
        others = _read_typed(element, _OTHERS[kind])
        return Description(kind, title, values, runtime, _read_keys(element), others)
    except ValueError as error:
        raise Unreadable(f"the description of '{title}' cannot be read: {error}") from error


def _read_typed(element: "Element", types: dict[str, type]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, kind in types.items():
        text = _child_text(element, name)
        if text is not None:
            found[name] = text.strip().lower() == "true" if kind is bool else kind(text)
    return found


def _read_counts(element: "Element") -> dict[str, Any]:
    counts = _child(element, "CountDetails")
    return {} if counts is None else {_local(count): int(count.text or "0") for count in counts}


def _read_keys(element: "Element") -> tuple[AuthorizationRule, ...]:
    listed = _child(element, "AuthorizationRules")
    keys = []
    for rule in [] if listed is None else listed:
        rights = _child(rule, "Rights")
        names = [right.text or "" for right in ([] if rights is None else rights)]
        keys.append(
            AuthorizationRule(
                _child_text(rule, "KeyName") or "",
                _child_text(rule, "PrimaryKey") or "",
                _child_text(rule, "SecondaryKey") or "",
                rights_from_names(names),
                tuple(_child_text(rule, word) or "" for word in _TIMES),
            )
        )
    return tuple(keys)


def _read_rule(element: "Element") -> dict[str, Any]:
    filter, action = _child(element, "Filter"), _child(element, "Action")
    if filter is None:
        raise ValueError("it has no filter")
    kind = _type(filter).removesuffix("Filter")
    values: dict[str, Any] = {"FilterType": kind}
    if kind == "Correlation":
        texts = {name: _child_text(filter, name) for name in CORRELATION_FIELDS}
        asked: dict[str, Any] = {name: text for name, text in texts.items() if text is not None}
        values["CorrelationFilter"] = asked | _read_pairs(filter, "Properties")
    elif kind == "Sql":
        values["SqlFilter"] = _read_sql(filter)
    elif kind not in ("True", "False"):
        raise ValueError(f"its filter is a '{_type(filter)}'")
    if action is not None and _type(action) == "SqlRuleAction":
        values["Action"] = _read_sql(action)
    return values


def _read_sql(element: "Element") -> dict[str, Any]:
    text = _child_text(element, "SqlExpression") or ""
    return {"SqlExpression": text, **_read_pairs(element, "Parameters")}


def _read_pairs(element: "Element", name: str) -> dict[str, Any]:
    listed = _child(element, name)
    pairs: dict[str, Any] = {}
    for pair in [] if listed is None else listed:
        value = _child(pair, "Value")
        if value is not None:
            pairs[_child_text(pair, "Key") or ""] = _read_value(value)
    return {name: pairs} if pairs else {}


def _read_value(element: "Element") -> Any:
    kind, text = _type(element), element.text or ""
    if kind == "boolean":
        return text == "true"
    if kind in ("int", "long"):
        return int(text)
    if kind == "double":
        return float(text)
    return text if kind in ("string", "") else {"type": kind, "text": text}


def _parse(content: bytes) -> "Element":
    from xml.etree.ElementTree import ParseError

    from defusedxml.common import DefusedXmlException
    from defusedxml.ElementTree import fromstring

    try:
        root: Element = fromstring(content, forbid_dtd=True)
    except (ParseError, DefusedXmlException, ValueError) as error:
        raise Unreadable(f"the answer is not XML: {error}") from error
    return root


def _local(element: "Element") -> str:
    return str(element.tag).rpartition("}")[2]


def _type(element: "Element") -> str:
    return element.get(f"{{{_INSTANCE}}}type", "").rpartition(":")[2]


def _child(element: "Element", name: str) -> "Element | None":
    return next((child for child in element if _local(child) == name), None)


def _child_text(element: "Element", name: str) -> str | None:
    child = _child(element, name)
    return None if child is None else child.text or ""
