"""Topics, subscriptions and rules over HTTP (protocol 9.6-9.8)."""

from __future__ import annotations

from xml.etree.ElementTree import Element, tostring

import pytest

from peeklock.broker.entities import Subscription, Topic
from peeklock.entity.commands import Schedule, SendMany
from peeklock.entity.rules.action import SqlAction
from peeklock.entity.rules.correlation import CorrelationFilter
from peeklock.entity.rules.filter import FalseFilter, SqlFilter, TrueFilter
from peeklock.entity.rules.rule import Rule
from peeklock.entity.rules.values import DurationValue, InstantValue
from tests.broker.broker_harness import Recorder
from tests.gateway.http.admin.admin_harness import (
    BUS,
    UPDATE,
    XSI,
    AdminHarness,
    counts,
    entry,
    message,
    queue,
    rule,
    run,
    sql,
    subscription,
    text,
    texts,
    titles,
    topic,
)

NEVER = "P10675199DT2H48M5.4775807S"
TOPIC = {
    "DefaultMessageTimeToLive": NEVER,
    "MaxSizeInMegabytes": "1024",
    "RequiresDuplicateDetection": "false",
    "DuplicateDetectionHistoryTimeWindow": "PT10M",
    "EnableBatchedOperations": "true",
    "SizeInBytes": "0",
    "FilteringMessagesBeforePublishing": "false",
    "IsAnonymousAccessible": "false",
    "AuthorizationRules": "",
    "Status": "Active",
    "CreatedAt": "",
    "UpdatedAt": "",
    "AccessedAt": "",
    "SupportOrdering": "true",
    "SubscriptionCount": "0",
    "SqlFilterCount": "0",
    "CorrelationFilterCount": "0",
    "AutoDeleteOnIdle": NEVER,
    "EnablePartitioning": "false",
    "EntityAvailabilityStatus": "Available",
    "EnableSubscriptionPartitioning": "false",
    "EnableExpress": "false",
    "MaxMessageSizeInKilobytes": "256",
}
SUBSCRIPTION = {
    "LockDuration": "PT1M",
    "RequiresSession": "false",
    "DefaultMessageTimeToLive": NEVER,
    "DeadLetteringOnMessageExpiration": "false",
    "DeadLetteringOnFilterEvaluationExceptions": "true",
    "MessageCount": "0",
    "MaxDeliveryCount": "10",
    "EnableBatchedOperations": "true",
    "Status": "Active",
    "CreatedAt": "",
    "UpdatedAt": "",
    "AccessedAt": "",
    "AutoDeleteOnIdle": NEVER,
    "EntityAvailabilityStatus": "Available",
}
TIMES = {"CreatedAt": "", "UpdatedAt": "", "AccessedAt": ""}


async def subscribed(admin: AdminHarness) -> Subscription:
    await admin.put("news", topic())
    await admin.put("news/Subscriptions/all", subscription())
    found = admin.broker.find("ns", "news/Subscriptions/all")
    assert isinstance(found, Subscription)
    return found


def test_a_topic_that_says_nothing_has_the_defaults_of_the_service() -> None:
    async def scenario(admin: AdminHarness) -> None:
        await admin.put("news", topic())
        got = texts(await admin.get("news"))
        assert got | TIMES == TOPIC
        assert list(got) == list(TOPIC)
        older = texts(await admin.get("news", version="2021-05"))
        assert not {"SqlFilterCount", "CorrelationFilterCount"} & set(older)

    run(scenario)


def test_everything_of_a_topic_comes_back() -> None:
    chosen = {
        "DefaultMessageTimeToLive": "PT11M",
        "MaxSizeInMegabytes": "5120",
        "RequiresDuplicateDetection": "true",
        "DuplicateDetectionHistoryTimeWindow": "PT12M",
        "EnableBatchedOperations": "false",
        "FilteringMessagesBeforePublishing": "true",
        "Status": "Disabled",
        "SupportOrdering": "false",
        "AutoDeleteOnIdle": "PT10M",
        "EnableExpress": "true",
        "UserMetadata": "noted",
        "MaxMessageSizeInKilobytes": "1024",
    }

    async def scenario(admin: AdminHarness) -> None:
        inner = "".join(f"<{name}>{value}</{name}>" for name, value in chosen.items())
        await admin.put("news", topic(inner))
        got = texts(await admin.get("news"))
        assert {name: got[name] for name in chosen} == chosen
        changed = texts(await admin.put("news", topic("<Status>Active</Status>"), UPDATE))
        assert changed["Status"] == "Active"
        assert changed["DefaultMessageTimeToLive"] == "PT11M"
        assert "UserMetadata" not in changed

    run(scenario)


def test_a_topic_knows_its_subscriptions_and_filters() -> None:
    async def scenario(admin: AdminHarness) -> None:
        found = await subscribed(admin)
        await admin.put("news/Subscriptions/all/Rules/a", rule(sql("x=1")))
        correlation = '<Filter i:type="CorrelationFilter"><Label>l</Label></Filter>'
        for name in "bc":
            await admin.put(f"news/Subscriptions/all/Rules/{name}", rule(correlation))
        later = message("m", scheduled_at=admin.clock.now() + 60_000)
        found.topic.submit(Schedule(Recorder(), 1, [later]))
        got = await admin.get("news")
        assert text(got, "SubscriptionCount") == "1"
        assert text(got, "SqlFilterCount") == "2", "one that takes all is one of SQL"
        assert text(got, "CorrelationFilterCount") == "2"
        assert counts(got)["ScheduledMessageCount"] == 1
        assert counts(got)["ActiveMessageCount"] == 0

    run(scenario)


def test_a_subscription_that_says_nothing_has_the_defaults_of_the_service() -> None:
    async def scenario(admin: AdminHarness) -> None:
        found = await subscribed(admin)
        got = texts(await admin.get("NEWS/subscriptions/ALL"))
        assert got | TIMES == SUBSCRIPTION
        assert list(got) == list(SUBSCRIPTION)
        assert [each.name for each in found.rules] == ["$Default"]

    run(scenario)


def test_everything_of_a_subscription_comes_back() -> None:
    chosen = {
        "LockDuration": "PT13S",
        "DefaultMessageTimeToLive": "PT11M",
        "DeadLetteringOnMessageExpiration": "true",
        "DeadLetteringOnFilterEvaluationExceptions": "false",
        "MaxDeliveryCount": "14",
        "EnableBatchedOperations": "false",
        "Status": "ReceiveDisabled",
        "ForwardTo": "https://localhost:5300/target",
        "UserMetadata": "noted",
        "ForwardDeadLetteredMessagesTo": "https://localhost:5300/target",
        "AutoDeleteOnIdle": "PT10M",
    }

    async def scenario(admin: AdminHarness) -> None:
        await admin.put("target", queue())
        await admin.put("news", topic())
        inner = "".join(f"<{name}>{value}</{name}>" for name, value in chosen.items())
        await admin.put("news/Subscriptions/some", subscription(inner))
        got = texts(await admin.get("news/Subscriptions/some"))
        assert {name: got[name] for name in chosen} == chosen
        admin.clock.advance(1_000)
        changed = texts(await admin.put("news/Subscriptions/some", subscription(), UPDATE))
        assert changed["MaxDeliveryCount"] == "14"
        assert changed["UpdatedAt"] > changed["CreatedAt"]
        assert not {"ForwardTo", "ForwardDeadLetteredMessagesTo", "UserMetadata"} & set(changed)

    run(scenario)


def test_a_subscription_may_begin_with_another_rule() -> None:
    async def scenario(admin: AdminHarness) -> None:
        await admin.put("news", topic())
        first = f"<DefaultRuleDescription>{sql('x=1')}<Name>mine</Name></DefaultRuleDescription>"
        await admin.put("news/Subscriptions/some", subscription(first))
        found = admin.broker.find("ns", "news/Subscriptions/some")
        assert isinstance(found, Subscription)
        assert [(each.name, each.filter) for each in found.rules] == [("mine", SqlFilter("x=1"))]

    run(scenario)


def test_counts_of_subscriptions_are_their_own() -> None:
    async def scenario(admin: AdminHarness) -> None:
        found = await subscribed(admin)
        await admin.put("news/Subscriptions/more", subscription())
        found.topic.submit(SendMany(Recorder(), [1, 2], [message("a"), message("b")]))
        for name in ("all", "more"):
            got = await admin.get(f"news/Subscriptions/{name}")
            assert counts(got)["ActiveMessageCount"] == 2
            assert text(got, "MessageCount") == "2"

    run(scenario)


def test_refusals_name_subscriptions_and_rules_as_the_service_does() -> None:
    async def scenario(admin: AdminHarness) -> None:
        await subscribed(admin)
        place = "news/Subscriptions/all"
        assert await admin.refusal("PUT", place, entry(subscription())) == (
            409,
            "The messaging entity 'ns:Topic:news|all' already exists.",
        )
        assert await admin.refusal("PUT", f"{place}/Rules/$Default", entry(rule())) == (
            409,
            "The messaging entity 'ns:Topic:news|all|$Default' already exists.",
        )
        for path, body, where in (
            ("news/Subscriptions/no", subscription(), "ns:Topic:news|no"),
            (f"{place}/Rules/no", rule(), "ns:Topic:news|all|no"),
        ):
            answer = await admin.refusal("PUT", path, entry(body), headers=UPDATE)
            assert answer == (404, f"Entity '{where}' was not found.")
        for path in ("none/Subscriptions/s", "news/Subscriptions/no/Rules/r"):
            body = rule() if "Rules" in path else subscription()
            assert (await admin.refusal("PUT", path, entry(body)))[0] == 404
        for path in ("news/Subscriptions/no", f"{place}/Rules/no", "no/Subscriptions/no"):
            assert (await admin.refusal("DELETE", path))[0] == 404
        session = "<RequiresSession>true</RequiresSession>"
        status, detail = await admin.refusal(
            "PUT", place, entry(subscription(session)), headers=UPDATE
        )
        assert (status, "of an existing Subscription cannot be changed" in detail) == (400, True)

    run(scenario)


def test_what_is_deleted_is_gone_with_all_below_it() -> None:
    async def scenario(admin: AdminHarness) -> None:
        await subscribed(admin)
        place = "news/Subscriptions/all"
        await admin.put(f"{place}/Rules/r", rule(sql("x=1")))
        for path in (f"{place}/Rules/R", place, "news"):
            answer = await admin.ask("DELETE", path)
            assert (answer.status, answer.body()) == (200, b"")
            if path == "news":
                assert titles(await admin.feed(path)) == []
            else:
                assert (await admin.refusal("GET", path))[0] == 404
        assert admin.broker.entities() == []

    run(scenario)


# Without a zone, as a client may give it: it gets none.
LOCAL = "2020-01-02T03:04:05"
PAIRS = (
    ('"p:string"', "x y", "x y"),
    ('"p:int"', "5", 5),
    ('"p:long"', "1000000000000", 10**12),
    ('"p:double"', "1.5", 1.5),
    ('"p:boolean"', "true", True),
    ('"p:dateTime"', LOCAL, InstantValue(15_779_342_450_000_000, LOCAL)),
    ('"p:duration"', "PT5S", DurationValue(50_000_000)),
)


def pairs(name: str) -> str:
    inner = "".join(
        f"<KeyValueOfstringanyType><Key>@p{at}</Key>"
        f'<Value q:type={kind} xmlns:q="{XSI}" xmlns:p="http://www.w3.org/2001/XMLSchema">'
        f"{written}</Value></KeyValueOfstringanyType>"
        for at, (kind, written, _) in enumerate(PAIRS)
    )
    return f"<{name}>{inner}</{name}>"


def values() -> dict[str, object]:
    return {f"@p{at}": value for at, (_, _, value) in enumerate(PAIRS)}


async def rule_of(admin: AdminHarness, name: str) -> Rule:
    found = admin.broker.find("ns", "news/Subscriptions/all")
    assert isinstance(found, Subscription)
    return next(each for each in found.rules if each.name == name)


def test_a_rule_keeps_its_text_and_its_values() -> None:
    async def scenario(admin: AdminHarness) -> None:
        await subscribed(admin)
        words = "a = @p1 AND\n\tb = @p0 or  c &lt; @p3 and d=@p2 and e=@p4 and f=@p5 and g=@p6"
        body = (
            f'<Filter i:type="SqlFilter"><SqlExpression>{words}</SqlExpression>'
            f"{pairs('Parameters')}<RequiresPreprocessing>false</RequiresPreprocessing></Filter>"
            '<Action i:type="SqlRuleAction"><SqlExpression>SET z = @p0</SqlExpression>'
            f"{pairs('Parameters')}</Action><Name>r</Name>"
        )
        await admin.put("news/Subscriptions/all/Rules/r", rule(body))
        kept = await rule_of(admin, "r")
        plain = words.replace("&lt;", "<")
        assert kept.filter == SqlFilter(plain, values())  # type: ignore[arg-type]  # a test's dict
        assert kept.action == SqlAction("SET z = @p0", values())  # type: ignore[arg-type]  # as above
        got = await admin.get("news/Subscriptions/all/Rules/r")
        filter = got.find(f"{BUS}Filter")
        assert filter is not None
        assert text(filter, "SqlExpression") == plain
        assert text(filter, "CompatibilityLevel") == "20"
        assert shown(filter, "Parameters") == [
            (f"@p{at}", kind.replace('"p:', "").replace('"', ""), written)
            for at, (kind, written, _) in enumerate(PAIRS[:-1])
        ] + [("@p6", "duration", "P0DT0H0M5S")]

    run(scenario)


def shown(element: Element, name: str) -> list[tuple[str | None, str, str | None]]:
    found = []
    for pair in element.findall(f"{BUS}{name}/{BUS}KeyValueOfstringanyType"):
        value = pair.find(f"{BUS}Value")
        assert value is not None
        prefix, _, kind = value.attrib[f"{{{XSI}}}type"].partition(":")
        assert len(prefix) == 4, "a client cuts five characters off"
        found.append((text(pair, "Key"), kind, value.text))
    return found


def test_a_correlation_filter_has_every_field() -> None:
    fields = {
        "CorrelationId": "c",
        "MessageId": "m",
        "To": "t",
        "ReplyTo": "r",
        "Label": "l",
        "SessionId": "s",
        "ReplyToSessionId": "rs",
        "ContentType": "ct",
    }

    async def scenario(admin: AdminHarness) -> None:
        await subscribed(admin)
        inner = "".join(f"<{name}>{value}</{name}>" for name, value in fields.items())
        body = f'<Filter i:type="CorrelationFilter">{inner}{pairs("Properties")}</Filter>'
        await admin.put("news/Subscriptions/all/Rules/r", rule(body))
        got = await admin.get("news/Subscriptions/all/Rules/r")
        filter = got.find(f"{BUS}Filter")
        assert filter is not None
        assert {name: text(filter, name) for name in fields} == fields
        assert len(shown(filter, "Properties")) == len(PAIRS)
        kept = await rule_of(admin, "r")
        assert isinstance(kept.filter, CorrelationFilter)
        assert kept.filter.properties == values()

    run(scenario)


@pytest.mark.parametrize(
    ("written", "expected", "sql_text"),
    [
        ('<Filter i:type="TrueFilter"/>', TrueFilter(), "1=1"),
        ('<Filter i:type="FalseFilter"/>', FalseFilter(), "1=0"),
        ("", TrueFilter(), "1=1"),
    ],
)
def test_filters_without_a_text(written: str, expected: object, sql_text: str) -> None:
    async def scenario(admin: AdminHarness) -> None:
        await subscribed(admin)
        await admin.put("news/Subscriptions/all/Rules/r", rule(written))
        assert (await rule_of(admin, "r")).filter == expected
        answer = await admin.ask("GET", "news/Subscriptions/all/Rules/r")
        # To the letter, because a client looks for this name and no other.
        assert f'<Filter i:type="{type(expected).__name__}">'.encode() in answer.body()
        assert f"<SqlExpression>{sql_text}</SqlExpression>".encode() in answer.body()
        assert b'<Action i:type="EmptyRuleAction"/>' in answer.body()

    run(scenario)


def test_an_updated_rule_has_another_filter_and_action_and_the_same_age() -> None:
    async def scenario(admin: AdminHarness) -> None:
        await subscribed(admin)
        place = "news/Subscriptions/all/Rules"
        await admin.put(f"{place}/a", rule(sql("x=1")))
        await admin.put(f"{place}/b", rule(sql("x=2")))
        age = (await rule_of(admin, "a")).created_at
        admin.clock.advance(1_000)
        await admin.put(f"{place}/A", rule(sql("x=3")), UPDATE)
        kept = await rule_of(admin, "a")
        assert (kept.filter, kept.created_at) == (SqlFilter("x=3"), age)
        assert titles(await admin.feed(place)) == ["$Default", "a", "b"]

    run(scenario)


@pytest.mark.parametrize(
    ("inner", "words"),
    [
        (sql("a = = b"), "Failed to parse the rule 'r'"),
        (sql(""), "rule 'r'"),
        ('<Filter i:type="SecretFilter"/>', "SecretFilter"),
        ('<Filter i:type="CorrelationFilter"/>', "at least one property"),
        (f'{sql("1=1")}<Action i:type="FlyAction"/>', "FlyAction"),
        (
            '<Filter i:type="SqlFilter"><SqlExpression>a=@p</SqlExpression><Parameters>'
            '<KeyValueOfstringanyType><Key>@p</Key><Value i:type="d:int">x</Value>'
            "</KeyValueOfstringanyType></Parameters></Filter>",
            "not of the type 'int'",
        ),
        (
            '<Filter i:type="SqlFilter"><SqlExpression>a=@p</SqlExpression><Parameters>'
            '<KeyValueOfstringanyType><Key>@p</Key><Value i:type="d:poem">x</Value>'
            "</KeyValueOfstringanyType></Parameters></Filter>",
            "'poem'",
        ),
    ],
)
def test_a_rule_that_cannot_be_is_refused(inner: str, words: str) -> None:
    async def scenario(admin: AdminHarness) -> None:
        found = await subscribed(admin)
        before = found.rules
        path = "news/Subscriptions/all/Rules/r"
        status, detail = await admin.refusal("PUT", path, entry(rule(inner)))
        assert (status, detail.startswith("SubCode=40000."), words in detail) == (400, True, True)
        assert found.rules == before

    run(scenario)


def test_a_name_of_any_case_is_shown_as_its_owner_wrote_it() -> None:
    async def scenario(admin: AdminHarness) -> None:
        await admin.put("News", topic())
        await admin.put("news/subscriptions/All", subscription())
        feed = await admin.feed("NEWS/Subscriptions")
        assert b"https://localhost:5300/News/Subscriptions/All?api-version" in tostring(feed)
        assert isinstance(admin.broker.find("ns", "news"), Topic)

    run(scenario)
