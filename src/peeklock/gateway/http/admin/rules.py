"""Rules as administration clients describe them (protocol 9.8)."""

from collections.abc import Mapping
from typing import Final

from peeklock.broker.entities import Subscription
from peeklock.entity.rules.action import SqlAction
from peeklock.entity.rules.correlation import CorrelationFilter
from peeklock.entity.rules.errors import RuleError
from peeklock.entity.rules.filter import FalseFilter, SqlFilter, TrueFilter
from peeklock.entity.rules.rule import Filter, Rule
from peeklock.entity.rules.values import Value
from peeklock.gateway.http.admin.atom import AtomEntry
from peeklock.gateway.http.admin.reading import Content, MalformedEntry
from peeklock.gateway.http.admin.values import read_value, write_value
from peeklock.gateway.http.admin.writing import XmlWriter, escaped

_PAIR: Final = "KeyValueOfstringanyType"
# The dialect of the texts, as the service calls it.
_COMPATIBILITY_LEVEL: Final = 20
_FIELDS: Final = (
    ("CorrelationId", "correlation_id"),
    ("MessageId", "message_id"),
    ("To", "to"),
    ("ReplyTo", "reply_to"),
    ("Label", "label"),
    ("SessionId", "session_id"),
    ("ReplyToSessionId", "reply_to_session_id"),
    ("ContentType", "content_type"),
)


def read_rule(content: Content, name: str) -> Rule:
    """Read a rule; its name is the one in the path, whatever the description says."""
    try:
        return Rule(name, _read_filter(content), _read_action(content))
    except RuleError as error:
        raise MalformedEntry(f"Failed to parse the rule '{name}': {error}.") from error


def _read_filter(content: Content) -> Filter:
    filter = content.child("Filter")
    if filter is None:
        return TrueFilter()
    kind = filter.type
    if kind == "TrueFilter":
        return TrueFilter()
    if kind == "FalseFilter":
        return FalseFilter()
    if kind == "CorrelationFilter":
        # An empty text is a field that is not asked for.
        fields = {attribute: filter.text(word) or None for word, attribute in _FIELDS}
        return CorrelationFilter(**fields, properties=_read_pairs(filter, "Properties"))
    if kind == "SqlFilter":
        text = filter.text("SqlExpression") or ""
        return SqlFilter(text, _read_pairs(filter, "Parameters"))
    raise MalformedEntry(
        f"The filter has the type '{kind}', which is none of SqlFilter, CorrelationFilter, "
        "TrueFilter and FalseFilter."
    )


def _read_action(content: Content) -> SqlAction | None:
    action = content.child("Action")
    if action is None or action.type in ("EmptyRuleAction", ""):
        return None
    if action.type != "SqlRuleAction":
        raise MalformedEntry(
            f"The action has the type '{action.type}', which is not SqlRuleAction."
        )
    text = action.text("SqlExpression")
    # An empty text changes nothing, which is what no action does.
    return SqlAction(text, _read_pairs(action, "Parameters")) if text else None


def _read_pairs(content: Content, name: str) -> dict[str, Value]:
    listed = content.child(name)
    pairs: dict[str, Value] = {}
    for pair in [] if listed is None else listed.children(_PAIR):
        key = pair.text("Key")
        if not key:
            raise MalformedEntry(f"One of {name} has no Key.")
        if key in pairs:
            raise MalformedEntry(f"'{key}' is given twice in {name}.")
        values = pair.children("Value")
        if not values:
            raise MalformedEntry(f"'{key}' has no Value in {name}.")
        pairs[key] = read_value(values[0], key)
    return pairs


def rule_entry(subscription: Subscription, rule: Rule) -> AtomEntry:
    """Describe a rule."""
    writer = XmlWriter()
    writer.raw(_filter_xml(rule.filter))
    writer.raw(_action_xml(rule.action))
    writer.instant("CreatedAt", rule.created_at)
    writer.text("Name", rule.name)
    description = writer.described("RuleDescription")
    path = f"{subscription.path}/Rules/{rule.name}"
    return AtomEntry(path, rule.name, rule.created_at, rule.created_at, description)


def _filter_xml(filter: Filter) -> str:
    if isinstance(filter, TrueFilter):
        return _sql_xml("Filter", "TrueFilter", "1=1", {})
    if isinstance(filter, FalseFilter):
        return _sql_xml("Filter", "FalseFilter", "1=0", {})
    if isinstance(filter, SqlFilter):
        return _sql_xml("Filter", "SqlFilter", filter.text, filter.parameters)
    writer = XmlWriter()
    for word, attribute in _FIELDS:
        text: str | None = getattr(filter, attribute)
        if text is not None:
            writer.text(word, text)
    writer.raw(_pairs_xml("Properties", filter.properties))
    return f'<Filter i:type="CorrelationFilter">{writer.xml()}</Filter>'


def _action_xml(action: SqlAction | None) -> str:
    if action is None:
        return '<Action i:type="EmptyRuleAction"/>'
    return _sql_xml("Action", "SqlRuleAction", action.text, action.parameters)


def _sql_xml(name: str, kind: str, text: str, parameters: Mapping[str, Value]) -> str:
    writer = XmlWriter()
    writer.text("SqlExpression", text)
    writer.whole("CompatibilityLevel", _COMPATIBILITY_LEVEL)
    writer.raw(_pairs_xml("Parameters", parameters))
    return f'<{name} i:type="{kind}">{writer.xml()}</{name}>'


def _pairs_xml(name: str, pairs: Mapping[str, Value]) -> str:
    if not pairs:
        return ""
    inner = "".join(
        f"<{_PAIR}><Key>{escaped(key)}</Key>{write_value(value)}</{_PAIR}>"
        for key, value in pairs.items()
    )
    return f"<{name}>{inner}</{name}>"
