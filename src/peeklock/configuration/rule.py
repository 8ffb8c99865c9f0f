"""Reads the Rules of a subscription: filters and actions."""

from typing import Final

from peeklock.configuration.section import Section
from peeklock.entity.definition import is_rule_name, not_a_name
from peeklock.entity.rules.action import SqlAction
from peeklock.entity.rules.correlation import CorrelationFilter
from peeklock.entity.rules.errors import RuleError
from peeklock.entity.rules.filter import FalseFilter, SqlFilter, TrueFilter
from peeklock.entity.rules.rule import Filter, Rule

# The emulator knows the first two. Deployment templates append the word to both.
_FILTER_TYPES: Final = ("Sql", "Correlation", "True", "False")
_TEMPLATE_SUFFIX: Final = "filter"


def read_rules(section: Section) -> tuple[Rule, ...]:
    """Read the rules of a subscription; there are none where it gives none."""
    rules: dict[str, Rule] = {}
    for entry in section.sections("Rules") or []:
        rule = _read_rule(entry)
        if rule.name.lower() in rules:
            entry.note("Name", f"'{rule.name}' is given twice")
        rules[rule.name.lower()] = rule
    return tuple(rules.values())


def _read_rule(entry: Section) -> Rule:
    name = entry.text("Name")
    if entry.has("Name") and not is_rule_name(name):
        entry.note("Name", not_a_name(name))
    properties = entry.section("Properties")
    if not entry.has("Properties"):
        entry.note("Properties", "is missing")
    filter = _read_filter(properties) if entry.has("Properties") else TrueFilter()
    action = _read_action(properties)
    properties.finish()
    entry.finish()
    return Rule(name, filter, action)


def _read_filter(properties: Section) -> Filter:
    kind = properties.text("FilterType").lower().removesuffix(_TEMPLATE_SUFFIX)
    # Both are asked for, whichever it is: tools write the other one too, and it has no effect.
    sql = properties.section("SqlFilter")
    correlation = properties.section("CorrelationFilter")
    if kind == "sql":
        return _read_sql_filter(sql)
    if kind == "correlation":
        return _read_correlation_filter(correlation)
    if kind == "false":
        return FalseFilter()
    if kind != "true" and properties.has("FilterType"):
        properties.note("FilterType", f"must be one of {', '.join(_FILTER_TYPES)}")
    return TrueFilter()


def _read_sql_filter(section: Section) -> Filter:
    text = section.text("SqlExpression")
    _skip_template_keys(section)
    section.finish()
    # A filter that is a problem is replaced by another one: the file is refused as a whole.
    if not section.has("SqlExpression"):
        return TrueFilter()
    try:
        return SqlFilter(text)
    except RuleError as error:
        section.note("SqlExpression", str(error))
        return TrueFilter()


def _read_correlation_filter(section: Section) -> Filter:
    # An empty text is a field that is not asked for, as an empty ForwardTo is no forward.
    content_type = section.text("ContentType", "") or None
    correlation_id = section.text("CorrelationId", "") or None
    label = section.text("Label", "") or None
    message_id = section.text("MessageId", "") or None
    reply_to = section.text("ReplyTo", "") or None
    reply_to_session_id = section.text("ReplyToSessionId", "") or None
    session_id = section.text("SessionId", "") or None
    to = section.text("To", "") or None
    properties = section.scalars("Properties")
    _skip_template_keys(section)
    section.finish()
    try:
        return CorrelationFilter(
            content_type=content_type,
            correlation_id=correlation_id,
            label=label,
            message_id=message_id,
            reply_to=reply_to,
            reply_to_session_id=reply_to_session_id,
            session_id=session_id,
            to=to,
            properties=properties,
        )
    except RuleError as error:
        section.note("", str(error))
        return TrueFilter()


def _read_action(properties: Section) -> SqlAction | None:
    section = properties.section("Action")
    text = section.text("SqlExpression", "")
    _skip_template_keys(section)
    section.finish()
    # An empty text is no action.
    if not text:
        return None
    try:
        return SqlAction(text)
    except RuleError as error:
        section.note("SqlExpression", str(error))
        return None


def _skip_template_keys(section: Section) -> None:
    """Read what deployment templates say beside; it has no effect in the service either."""
    section.flag("RequiresPreprocessing", default=False)
    section.whole("CompatibilityLevel", 20)
