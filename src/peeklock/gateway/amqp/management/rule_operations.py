"""The operations of `$management` on the rules of a subscription (protocol 6.3)."""

from typing import Any, Final

from peeklock.amqp.values.types import Described, Int, Timestamp, Ulong
from peeklock.auth.rights import LISTEN
from peeklock.entity.definition import SUBSCRIPTION, is_rule_name
from peeklock.entity.refusals import INVALID_ARGUMENT, NOT_ALLOWED, Refusal
from peeklock.entity.replies import Reply, RulesFound
from peeklock.entity.rules.action import SqlAction
from peeklock.entity.rules.correlation import CorrelationFilter
from peeklock.entity.rules.errors import RuleError
from peeklock.entity.rules.filter import FalseFilter, SqlFilter, TrueFilter
from peeklock.entity.rules.rule import Filter, Rule
from peeklock.entity.topics.commands import AddRule, ListRules, RemoveRule, RuleCommand
from peeklock.gateway.amqp.address import OWN
from peeklock.gateway.amqp.management.arguments import INT32_MAX, PAGE_MAX, Arguments
from peeklock.gateway.amqp.management.calls import PREFIX, Call, Operation, write_done
from peeklock.gateway.amqp.management.rule_values import rule_value, wire_value

_NO_RULES: Final = "The operation needs a subscription; nothing else has rules."

# Two families: filters are 0x13_7000_000x, rules and actions are 0x137_0000_000x.
_RULE: Final = Ulong(0x137_0000_0004)
_NO_ACTION: Final = Ulong(0x137_0000_0005)
_SQL_ACTION: Final = Ulong(0x137_0000_0006)
_SQL_FILTER: Final = Ulong(0x13_7000_0006)
_TRUE_FILTER: Final = Ulong(0x13_7000_0007)
_FALSE_FILTER: Final = Ulong(0x13_7000_0008)
_CORRELATION_FILTER: Final = Ulong(0x13_7000_0009)

# The dialect of the texts, as the service calls it.
_COMPATIBILITY_LEVEL: Final = 20


def _read_add(call: Call) -> RuleCommand | Refusal:
    if not _has_rules(call):
        return Refusal(NOT_ALLOWED, _NO_RULES)
    arguments = call.arguments
    name = arguments.text("rule-name")
    if not is_rule_name(name):
        arguments.wrong("rule-name", "must be a name of letters, digits and . - _")
    description = arguments.within("rule-description")
    try:
        rule = Rule(name, _read_filter(description), _read_action(description), call.now)
    except RuleError as error:
        text = f"Failed to parse the rule '{name}': {error}."
        return Refusal(INVALID_ARGUMENT, text)
    arguments.adopt(description)
    return AddRule(call.origin, call.tag, rule)


def _read_filter(description: Arguments) -> Filter:
    has_sql = description.has("sql-filter")
    if has_sql == description.has("correlation-filter"):
        text = "must hold either a 'sql-filter' or a 'correlation-filter'"
        description.wrong("rule-description", text)
        return TrueFilter()
    if has_sql:
        sql = description.within("sql-filter")
        text = sql.text("expression")
        description.adopt(sql)
        if description.refusal is not None:
            return TrueFilter()
        # "1=1" and "1=0", as which clients write the other two filters, stay as they are written.
        return SqlFilter(text)
    wanted = description.within("correlation-filter")
    fields = {
        "correlation_id": wanted.optional_text("correlation-id"),
        "message_id": wanted.optional_text("message-id"),
        "to": wanted.optional_text("to"),
        "reply_to": wanted.optional_text("reply-to"),
        "label": wanted.optional_text("label"),
        "session_id": wanted.optional_text("session-id"),
        "reply_to_session_id": wanted.optional_text("reply-to-session-id"),
        "content_type": wanted.optional_text("content-type"),
    }
    properties = {
        str(name): rule_value(value) for name, value in wanted.optional_map("properties").items()
    }
    description.adopt(wanted)
    if description.refusal is not None:
        return TrueFilter()
    return CorrelationFilter(**fields, properties=properties)


def _read_action(description: Arguments) -> SqlAction | None:
    if not description.has("sql-rule-action"):
        return None
    action = description.within("sql-rule-action")
    text = action.optional_text("expression")
    description.adopt(action)
    # An empty text changes nothing, which is what no action does.
    return SqlAction(text) if text else None


def _read_remove(call: Call) -> RuleCommand | Refusal:
    if not _has_rules(call):
        return Refusal(NOT_ALLOWED, _NO_RULES)
    return RemoveRule(call.origin, call.tag, call.arguments.text("rule-name"))


def _read_list(call: Call) -> RuleCommand | Refusal:
    if not _has_rules(call):
        return Refusal(NOT_ALLOWED, _NO_RULES)
    skip = call.arguments.number("skip", high=INT32_MAX)
    top = call.arguments.number("top", high=INT32_MAX)
    return ListRules(call.origin, call.tag, skip, min(top, PAGE_MAX))


def _write_list(_call: Call, reply: Reply) -> dict[Any, Any] | None:
    assert isinstance(reply, RulesFound), f"rules were expected, not {reply!r}"
    if not reply.rules:
        # JavaScript's client asks on and on until it is told that there is nothing more.
        return None
    return {"rules": [{"rule-description": _described(rule)} for rule in reply.rules]}


def _described(rule: Rule) -> Described:
    action = Described(_NO_ACTION, [])
    if rule.action is not None:
        action = Described(_SQL_ACTION, [rule.action.text, Int(_COMPATIBILITY_LEVEL)])
    fields = [_described_filter(rule.filter), action, rule.name, Timestamp(rule.created_at)]
    return Described(_RULE, fields)


def _described_filter(filter: Filter) -> Described:
    if isinstance(filter, TrueFilter):
        return Described(_TRUE_FILTER, [])
    if isinstance(filter, FalseFilter):
        return Described(_FALSE_FILTER, [])
    if isinstance(filter, SqlFilter):
        return Described(_SQL_FILTER, [filter.text, Int(_COMPATIBILITY_LEVEL)])
    properties = {name: wire_value(value) for name, value in filter.properties.items()}
    return Described(
        _CORRELATION_FILTER,
        [
            filter.correlation_id,
            filter.message_id,
            filter.to,
            filter.reply_to,
            filter.label,
            filter.session_id,
            filter.reply_to_session_id,
            filter.content_type,
            properties,
        ],
    )


def _has_rules(call: Call) -> bool:
    return call.entity.kind == SUBSCRIPTION and call.sub_queue == OWN


# Listen is enough for all three: the service asks for Manage where rules are changed over HTTP, and
# its older clients for subscriptions change them over AMQP with the right to listen (protocol 2.3).
RULE_OPERATIONS: Final[dict[str, Operation]] = {
    PREFIX + "add-rule": Operation(LISTEN, _read_add, write_done),
    PREFIX + "remove-rule": Operation(LISTEN, _read_remove, write_done),
    PREFIX + "enumerate-rules": Operation(LISTEN, _read_list, _write_list),
}
