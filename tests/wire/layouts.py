"""Entities that belong together: topics with subscriptions and rules, queues that forward.

A layout is written into the Config.json as often as tests need it. One copy is a group, and its
name comes before the names of its entities: `group` alone, or `group/entity`.
"""

from dataclasses import dataclass, field
from typing import Any, Final

Properties = dict[str, Any]

WINDOW_S: Final = 5
TTL_S: Final = 3
PARTITIONED: Final[Properties] = {"EnablePartitioning": True, "PartitionCount": 4}
# Where in a destination the name of the group stands.
GROUP: Final = "{group}"
DESTINATIONS: Final = ("ForwardTo", "ForwardDeadLetteredMessagesTo")


@dataclass(frozen=True)
class Subscription:
    """What a subscription is made of; without rules it takes everything."""

    properties: Properties = field(default_factory=dict)
    rules: tuple[Properties, ...] = ()


@dataclass(frozen=True)
class Topic:
    """What a topic is made of."""

    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    properties: Properties = field(default_factory=dict)


@dataclass(frozen=True)
class Layout:
    """How many groups there are, and which entities each has; the empty name is the group's own."""

    count: int
    queues: dict[str, Properties] = field(default_factory=dict)
    topics: dict[str, Topic] = field(default_factory=dict)


def rule(name: str, *, action: str = "", **wanted: Any) -> Properties:
    """A rule by SQL (`sql=`), by correlation (fields and `Properties`), or for all (neither)."""
    if "sql" in wanted:
        properties = {"FilterType": "Sql", "SqlFilter": {"SqlExpression": wanted["sql"]}}
    elif wanted:
        properties = {"FilterType": "Correlation", "CorrelationFilter": wanted}
    else:
        properties = {"FilterType": "True"}
    if action:
        properties["Action"] = {"SqlExpression": action}
    return {"Name": name, "Properties": properties}


# --- filters: each rule makes a copy of its own that says which one it was

# The properties that both kinds of filter know; a message that satisfies them has `its-X` as X.
SYSTEM_FIELDS: Final = (
    *("MessageId", "CorrelationId", "SessionId", "To", "ReplyTo", "ReplyToSessionId"),
    *("Label", "ContentType"),
)

SYSTEM_SQL: Final[dict[str, str]] = {
    "subject": "sys.Subject = 'its-Label'",
    "any-case": "SYS.messageid = 'its-MessageId'",
    "partition-key": "sys.PartitionKey = 'its-SessionId'",
    "large": "sys.Size > 2000",
    "lives": "sys.TimeToLive IS NOT NULL",
    "scheduled": "sys.ScheduledEnqueueTimeUtc IS NOT NULL",
    "enqueued": "sys.EnqueuedTimeUtc IS NOT NULL",
    "fresh": "sys.DeliveryCount = 0",
    "like": "sys.To LIKE 'its%'",
    "joined": "sys.To + '/' + sys.ReplyTo = 'its-To/its-ReplyTo'",
}

USER_SQL: Final[dict[str, str]] = {
    "text": "colour = 'red'",
    "name-of-any-case": "COLOUR = 'red'",
    "value-of-other-case": "colour = 'RED'",
    "scope": "user.colour = 'red'",
    "brackets": "[the colour] = 'red'",
    "quotes": "\"the colour\" = 'red'",
    "function": "property('the ' + 'colour') = 'red'",
    "apostrophe": "colour = 'it''s'",
    "order-of-texts": "colour >= 'pink' AND colour < 'rose'",
    "like-run": "colour LIKE 'r%'",
    "like-one": "colour LIKE '_ed'",
    "not-like": "colour NOT LIKE 'r%'",
    "like-escape": "colour LIKE '50!%%' ESCAPE '!'",
    "in-texts": "colour IN ('red', 'blue')",
    "not-in-texts": "colour NOT IN ('red', 'blue')",
    "is-null": "colour IS NULL",
    "is-not-null": "colour IS NOT NULL",
    "exists": "EXISTS(colour)",
    "not-exists": "NOT EXISTS(colour)",
    "whole": "n = 7",
    "whole-as-double": "n = 7.0",
    "unequal": "n <> 7",
    "between": "n > 6 AND n <= 7",
    "fraction-below": "n > 6.5",
    "in-numbers": "n IN (1, 7.0, 9)",
    "arithmetic": "n * 2 + 1 = 15",
    "precedence": "1 + n * 2 = 15",
    "brackets-first": "(1 + n) * 2 = 16",
    "division": "n / 2 = 3",
    "modulo": "n % 4 = 3",
    "sign": "-n = -7",
    "not-a-text": "n = '7'",
    "long": "big = 5000000000",
    "flag": "flag = TRUE",
    "flag-alone": "flag",
    "not-flag": "NOT flag",
    "double": "ratio = 0.5",
    "double-below": "ratio < 7.5E-1",
    "same": "left = right",
    "different": "left <> right",
    "later": "left < right",
    "in-the-future": "left > sys.EnqueuedTimeUtc",
    "unknown-or-true": "nowhere = 1 OR n = 7",
    "unknown-and-true": "nowhere = 1 AND n = 7",
    "not-unknown": "NOT (nowhere = 1)",
}

USER_CORRELATION: Final[dict[str, Properties]] = {
    "c-text": {"Properties": {"colour": "red"}},
    "c-whole": {"Properties": {"n": 7}},
    "c-flag": {"Properties": {"flag": True}},
    "c-double": {"Properties": {"ratio": 0.5}},
    "c-all-of": {"Label": "its-Label", "Properties": {"colour": "red", "n": 7}},
}


def _verdict(name: str) -> str:
    return f"SET verdict = '{name}'"


_SYSTEM_RULES: Final = (
    *(
        rule(f"sql-{name}", sql=f"sys.{name} = 'its-{name}'", action=_verdict(f"sql-{name}"))
        for name in SYSTEM_FIELDS
    ),
    *(
        rule(f"c-{name}", action=_verdict(f"c-{name}"), **{name: f"its-{name}"})
        for name in SYSTEM_FIELDS
    ),
    *(rule(name, sql=text, action=_verdict(name)) for name, text in SYSTEM_SQL.items()),
)
_USER_RULES: Final = (
    *(rule(name, sql=text, action=_verdict(name)) for name, text in USER_SQL.items()),
    *(rule(name, action=_verdict(name), **wanted) for name, wanted in USER_CORRELATION.items()),
)
_FALSE: Final[Properties] = {"Name": "never", "Properties": {"FilterType": "False"}}


# --- topics

_TAKES_ALL: Final = {name: Subscription() for name in ("a", "b", "c")}
_CHANGING: Final = (
    "SET region = 'north'; SET n = n + 1; SET [joined up] = colour + '/' + region;"
    "SET sys.Label = 'changed'; SET sys.ReplyTo = sys.MessageId; REMOVE colour; REMOVE sys.To"
)

TOPICS: Final[dict[str, Layout]] = {
    "topic": Layout(40, topics={"": Topic(_TAKES_ALL)}),
    "partitioned-topic": Layout(16, topics={"": Topic(_TAKES_ALL, PARTITIONED)}),
    "wide-topic": Layout(
        2, topics={"": Topic({f"s{index:02}": Subscription() for index in range(40)})}
    ),
    # For a broker of its own only: it would be much for each test to start with.
    "crowd": Layout(
        0,
        topics={
            "": Topic(
                {
                    f"s{index:04}": Subscription(
                        rules=(
                            rule("own", Properties={"n": index}),
                            rule("all", Properties={"all": True}),
                        )
                    )
                    for index in range(2000)
                }
            )
        },
    ),
    "filters": Layout(
        9,
        topics={
            "system": Topic({"verdicts": Subscription(rules=_SYSTEM_RULES)}),
            "user": Topic({"verdicts": Subscription(rules=_USER_RULES)}),
        },
    ),
    "choosy-topic": Layout(
        6,
        topics={
            "": Topic(
                {
                    "all": Subscription(rules=(rule("all"),)),
                    "none": Subscription(rules=(_FALSE,)),
                    "red": Subscription(rules=(rule("red", sql="colour = 'red'"),)),
                    "blue": Subscription(rules=(rule("blue", Properties={"colour": "blue"}),)),
                    "either": Subscription(
                        rules=(
                            rule("red", sql="colour = 'red'"),
                            rule("blue", Properties={"colour": "blue"}),
                            rule("short", sql="colour LIKE '____'"),
                        )
                    ),
                }
            )
        },
    ),
    "changing-topic": Layout(
        8,
        topics={
            "": Topic(
                {
                    "changed": Subscription(
                        rules=(
                            rule("one", sql="n > 0"),
                            rule("two"),
                            rule("three", sql="n > 0", action=_CHANGING),
                            rule("four", action="SET id = newid(); SET gone = nowhere"),
                            rule("five", sql="n < 0", action="SET region = 'south'"),
                        )
                    ),
                    "untouched": Subscription(),
                }
            )
        },
    ),
    "failing-topic": Layout(
        5,
        topics={
            "": Topic(
                {
                    "kept": Subscription(
                        {"DeadLetteringOnFilterEvaluationExceptions": True},
                        (rule("divides", sql="n / d = 1"),),
                    ),
                    "dropped": Subscription(
                        {"DeadLetteringOnFilterEvaluationExceptions": False},
                        (rule("divides", sql="n / d = 1"),),
                    ),
                    "action": Subscription(
                        {"DeadLetteringOnFilterEvaluationExceptions": True},
                        (rule("divides", action="SET quotient = n / d"),),
                    ),
                    "bystander": Subscription(),
                }
            )
        },
    ),
    "deserted-topic": Layout(
        5,
        topics={"": Topic(), "refused": Topic({"none": Subscription(rules=(_FALSE,))})},
    ),
    "trying-topic": Layout(
        5,
        topics={
            "": Topic(
                {"red": Subscription(rules=(rule("red", sql="colour = 'red'"),))},
                {"FilteringMessagesBeforePublishing": True},
            )
        },
    ),
    "session-topic": Layout(
        8,
        topics={
            "": Topic(
                {"sessions": Subscription({"RequiresSession": True}), "ordinary": Subscription()}
            )
        },
    ),
    "partitioned-session-topic": Layout(
        2, topics={"": Topic({"sessions": Subscription({"RequiresSession": True})}, PARTITIONED)}
    ),
    "short-topic": Layout(
        6,
        topics={
            "": Topic(
                {
                    "default": Subscription({"LockDuration": "PT5S"}),
                    "short": Subscription(
                        {
                            "DefaultMessageTimeToLive": f"PT{TTL_S}S",
                            "DeadLetteringOnMessageExpiration": True,
                        }
                    ),
                    "two-deliveries": Subscription({"MaxDeliveryCount": 2}),
                }
            ),
            "limited": Topic(
                {"s": Subscription({"DeadLetteringOnMessageExpiration": True})},
                {"DefaultMessageTimeToLive": f"PT{TTL_S}S"},
            ),
        },
    ),
}

# --- duplicates

_DETECTING: Final[Properties] = {"RequiresDuplicateDetection": True}
_BRIEFLY: Final[Properties] = _DETECTING | {"DuplicateDetectionHistoryTimeWindow": f"PT{WINDOW_S}S"}

DUPLICATES: Final[dict[str, Layout]] = {
    "dedup": Layout(22, queues={"": _DETECTING}),
    "dedup-brief": Layout(4, queues={"": _BRIEFLY}),
    "partitioned-dedup": Layout(6, queues={"": _DETECTING | PARTITIONED}),
    "dedup-session": Layout(2, queues={"": _DETECTING | {"RequiresSession": True}}),
    "dedup-topic": Layout(2, topics={"": Topic(_TAKES_ALL, _DETECTING)}),
}

# --- forwarding


def _to(entity: str) -> Properties:
    return {"ForwardTo": f"{GROUP}/{entity}"}


def _dead_to(entity: str) -> Properties:
    return {"ForwardDeadLetteredMessagesTo": f"{GROUP}/{entity}"}


FORWARDING: Final[dict[str, Layout]] = {
    "relay": Layout(12, queues={"in": _to("out"), "out": {}}),
    "relay-topic": Layout(
        2,
        queues={"in": _to("topic"), "out": {}},
        topics={
            "topic": Topic(
                {
                    "red": Subscription(_to("out"), (rule("red", sql="colour = 'red'"),)),
                    "all": Subscription(),
                }
            )
        },
    ),
    # One more than a message may go: h1 -> h2 -> h3 -> h4 -> h5 -> h6.
    "chain": Layout(2, queues={**{f"h{hop}": _to(f"h{hop + 1}") for hop in range(1, 6)}, "h6": {}}),
    "ring": Layout(2, queues={"one": _to("two"), "two": _to("one")}),
    "relay-dead": Layout(
        8,
        queues={
            "in": _dead_to("dead") | {"MaxDeliveryCount": 2},
            "expiring": _dead_to("dead")
            | {"DeadLetteringOnMessageExpiration": True, "LockDuration": "PT5S"},
            "dead": {},
        },
        topics={"topic": Topic({"s": Subscription(_dead_to("dead"))})},
    ),
    "relay-refused": Layout(
        6,
        queues={
            "in": _to("disabled"),
            "disabled": {"Status": "Disabled"},
            "large": _to("small") | {"MaxMessageSizeInKilobytes": 1024},
            "small": {},
            "filling": _to("full"),
            "full": {"MaxSizeInMegabytes": 1},
            "both": _to("disabled") | _dead_to("dead"),
            "dead": {},
        },
    ),
    "relay-session": Layout(
        2,
        queues={"in": _to("out"), "out": {"RequiresSession": True}},
    ),
    "relay-from-partitioned": Layout(2, queues={"in": _to("out") | PARTITIONED, "out": {}}),
    "relay-to-partitioned": Layout(2, queues={"in": _to("out"), "out": PARTITIONED}),
    "relay-partitioned": Layout(
        2,
        queues={
            "in": _to("out") | PARTITIONED,
            "out": {**PARTITIONED, "RequiresSession": True},
        },
    ),
    "relay-dedup": Layout(2, queues={"in": _to("out"), "out": _DETECTING}),
}

# --- status and size

STATUSES: Final[dict[str, Layout]] = {
    "disabled": Layout(4, queues={"": {"Status": "Disabled"}}),
    "topic-statuses": Layout(
        6,
        topics={
            "disabled": Topic(_TAKES_ALL, {"Status": "Disabled"}),
            "send-disabled": Topic(_TAKES_ALL, {"Status": "SendDisabled"}),
            "receive-disabled": Topic(_TAKES_ALL, {"Status": "ReceiveDisabled"}),
            "active": Topic(
                {
                    "active": Subscription(),
                    "disabled": Subscription({"Status": "Disabled"}),
                    "send-disabled": Subscription({"Status": "SendDisabled"}),
                    "receive-disabled": Subscription({"Status": "ReceiveDisabled"}),
                }
            ),
        },
    ),
    "small": Layout(
        6,
        queues={"": {"MaxSizeInMegabytes": 1}},
        topics={
            "topic": Topic({name: Subscription() for name in ("a", "b")}, {"MaxSizeInMegabytes": 1})
        },
    ),
}

LAYOUTS: Final[dict[str, Layout]] = TOPICS | DUPLICATES | FORWARDING | STATUSES


def queues_of(kind: str, group: str) -> list[Properties]:
    """The queues of one group as they stand in a Config.json."""
    return [
        {"Name": _name(group, name), "Properties": _placed(properties, group)}
        for name, properties in LAYOUTS[kind].queues.items()
    ]


def topics_of(kind: str, group: str) -> list[Properties]:
    """The topics of one group, with all they have."""
    return [
        {
            "Name": _name(group, name),
            "Properties": topic.properties,
            "Subscriptions": [
                {
                    "Name": each,
                    "Properties": _placed(subscription.properties, group),
                    "Rules": list(subscription.rules),
                }
                for each, subscription in topic.subscriptions.items()
            ],
        }
        for name, topic in LAYOUTS[kind].topics.items()
    ]


def _name(group: str, entity: str) -> str:
    return f"{group}/{entity}" if entity else group


def _placed(properties: Properties, group: str) -> Properties:
    return {
        key: value.replace(GROUP, group) if key in DESTINATIONS else value
        for key, value in properties.items()
    }
