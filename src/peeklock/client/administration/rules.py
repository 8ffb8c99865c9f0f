"""Rules as administration describes them: which messages a filter takes, what an action changes."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TypeAlias, final

# What a parameter or a property that is asked for may be.
RuleValue: TypeAlias = str | int | float | bool | datetime | timedelta


@final
@dataclass(slots=True)
class SqlRuleFilter:
    """Takes the messages for which an SQL condition is true; parameters stand for `@name` in it."""

    sql_expression: str
    parameters: dict[str, RuleValue] = field(default_factory=dict)


@final
@dataclass(slots=True)
class TrueRuleFilter:
    """Takes every message."""


@final
@dataclass(slots=True)
class FalseRuleFilter:
    """Takes no message."""


@final
@dataclass(slots=True)
class CorrelationRuleFilter:
    """Takes the messages that have all of these values; `label` is what messages call subject."""

    correlation_id: str | None = None
    message_id: str | None = None
    to: str | None = None
    reply_to: str | None = None
    label: str | None = None
    session_id: str | None = None
    reply_to_session_id: str | None = None
    content_type: str | None = None
    properties: dict[str, RuleValue] = field(default_factory=dict)


RuleFilter: TypeAlias = SqlRuleFilter | TrueRuleFilter | FalseRuleFilter | CorrelationRuleFilter


@final
@dataclass(slots=True)
class SqlRuleAction:
    """Changes the copy of a message that a rule takes, `SET a = 1; REMOVE b` say."""

    sql_expression: str
    parameters: dict[str, RuleValue] = field(default_factory=dict)


@final
@dataclass(slots=True)
class RuleProperties:
    """A rule of a subscription."""

    name: str
    filter: RuleFilter = field(default_factory=TrueRuleFilter)
    action: SqlRuleAction | None = None
    created_at_utc: datetime | None = None
