"""Queues over HTTP: every property in and out, and what cannot be (protocol 9.5, R-P2, R-P9)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from peeklock.auth.rights import MANAGE, SEND
from peeklock.broker.entities import Queue
from peeklock.entity.commands import (
    DEAD_LETTER,
    DEFER,
    PEEK_LOCK,
    ClaimMessages,
    Grant,
    OpenReceiver,
    Schedule,
    SendMany,
    SettleMany,
)
from peeklock.entity.definition import QueueDefinition
from peeklock.entity.settlement import Settlement
from peeklock.store.memory import MemoryCatalog, MemoryStore
from tests.broker.broker_harness import Recorder, settle_down, token
from tests.gateway.http.admin.admin_harness import (
    HOST,
    UPDATE,
    AdminHarness,
    counts,
    entry,
    key,
    message,
    queue,
    run,
    subscription,
    text,
    texts,
    topic,
)

NEVER = "P10675199DT2H48M5.4775807S"
DEFAULTS = {
    "LockDuration": "PT1M",
    "MaxSizeInMegabytes": "1024",
    "RequiresDuplicateDetection": "false",
    "RequiresSession": "false",
    "DefaultMessageTimeToLive": NEVER,
    "DeadLetteringOnMessageExpiration": "false",
    "DuplicateDetectionHistoryTimeWindow": "PT10M",
    "MaxDeliveryCount": "10",
    "EnableBatchedOperations": "true",
    "SizeInBytes": "0",
    "MessageCount": "0",
    "IsAnonymousAccessible": "false",
    "AuthorizationRules": "",
    "Status": "Active",
    "CreatedAt": "1970-01-01T00:00:00.000Z",
    "UpdatedAt": "1970-01-01T00:00:00.000Z",
    "AccessedAt": "0001-01-01T00:00:00Z",
    "SupportOrdering": "true",
    "AutoDeleteOnIdle": NEVER,
    "EnablePartitioning": "false",
    "EntityAvailabilityStatus": "Available",
    "EnableExpress": "false",
    "MaxMessageSizeInKilobytes": "256",
}
TIMES = ("CreatedAt", "UpdatedAt", "AccessedAt")
CHOSEN = {
    "LockDuration": "PT13S",
    "MaxSizeInMegabytes": "3072",
    "RequiresDuplicateDetection": "true",
    "DefaultMessageTimeToLive": "P1DT2H",
    "DeadLetteringOnMessageExpiration": "true",
    "DuplicateDetectionHistoryTimeWindow": "PT12M",
    "MaxDeliveryCount": "14",
    "EnableBatchedOperations": "false",
    "Status": "SendDisabled",
    "ForwardTo": "https://localhost:5300/target",
    "SupportOrdering": "false",
    "AutoDeleteOnIdle": "PT10M",
    "EnableExpress": "true",
    "UserMetadata": "<a> & b",
    "ForwardDeadLetteredMessagesTo": "https://localhost:5300/target",
    "MaxMessageSizeInKilobytes": "1024",
}


def written(properties: dict[str, str]) -> str:
    pairs = ((name, value.replace("&", "&amp;")) for name, value in properties.items())
    return "".join(f"<{name}>{value.replace('<', '&lt;')}</{name}>" for name, value in pairs)


def test_a_queue_that_says_nothing_has_the_defaults_of_the_service() -> None:
    async def scenario(admin: AdminHarness) -> None:
        put = texts(await admin.put("orders", queue()))
        got = texts(await admin.get("orders"))
        for found in (put, got):
            assert {k: v for k, v in found.items() if k not in TIMES} == {
                k: v for k, v in DEFAULTS.items() if k not in TIMES
            }
        # In the order of the service, which some readers rely on.
        assert list(got) == list(DEFAULTS)
        known = admin.broker.find("ns", "ORDERS")
        assert isinstance(known, Queue)
        assert known.definition.size_max == 0

    run(scenario)


def test_everything_that_is_chosen_comes_back() -> None:
    async def scenario(admin: AdminHarness) -> None:
        await admin.put("target", queue())
        inner = written(CHOSEN)
        put = texts(await admin.put("a/orders", queue(inner)))
        got = texts(await admin.get("a%2Forders"))
        for found in (put, got):
            assert {name: found[name] for name in CHOSEN} == CHOSEN

    run(scenario)


def test_a_partitioned_queue_shows_the_size_of_all_partitions() -> None:
    async def scenario(admin: AdminHarness) -> None:
        inner = "<EnablePartitioning>true</EnablePartitioning>"
        plain = await admin.put("plain", queue(inner))
        assert text(plain, "MaxSizeInMegabytes") == "16384"
        assert text(plain, "SupportOrdering") == "false"
        sized = await admin.put(
            "sized", queue(f"{inner}<MaxSizeInMegabytes>2048</MaxSizeInMegabytes>")
        )
        assert text(sized, "MaxSizeInMegabytes") == "32768"
        # What is sent back as it was shown changes nothing.
        for path in ("plain", "sized"):
            known = admin.broker.find("ns", path)
            assert isinstance(known, Queue)
            before = known.definition.size_max
            shown = text(await admin.get(path), "MaxSizeInMegabytes")
            inner = f"<MaxSizeInMegabytes>{shown}</MaxSizeInMegabytes>"
            await admin.put(path, queue(inner), UPDATE)
            assert known.definition.size_max == before

    run(scenario)


def test_what_the_service_does_not_have_can_be_said_too() -> None:
    """R-P1, R-S8."""

    async def scenario(admin: AdminHarness) -> None:
        inner = "<EnablePartitioning>true</EnablePartitioning><PartitionCount>4</PartitionCount>"
        inner += "<UnlockOnDisconnect>true</UnlockOnDisconnect>"
        await admin.put("orders", queue(inner))
        found = texts(await admin.get("orders"))
        assert (found["PartitionCount"], found["UnlockOnDisconnect"]) == ("4", "true")
        assert found["MaxSizeInMegabytes"] == "4096"
        # Who does not know them leaves them as they are.
        await admin.put("orders", queue("<EnablePartitioning>true</EnablePartitioning>"), UPDATE)
        assert texts(await admin.get("orders"))["PartitionCount"] == "4"
        for wrong in (
            "<PartitionCount>4</PartitionCount>",
            inner.replace(">4<", ">1<"),
            inner.replace(">4<", ">33<"),
        ):
            status, detail = await admin.refusal("PUT", "other", entry(queue(wrong)))
            assert (status, "PartitionCount" in detail) == (400, True)
        body = entry(queue(inner.replace(">4<", ">5<")))
        status, detail = await admin.refusal("PUT", "orders", body, headers=UPDATE)
        assert (status, "Partitioning cannot be changed" in detail) == (400, True)

    run(scenario)


def test_an_update_changes_what_it_says_and_clears_what_can_only_be_left_out() -> None:
    async def scenario(admin: AdminHarness) -> None:
        await admin.put("target", queue())
        inner = written({k: v for k, v in CHOSEN.items() if k != "Status"})
        await admin.put("orders", queue(inner))
        admin.clock.advance(5_000)
        changed = await admin.put("Orders", queue("<LockDuration>PT2M</LockDuration>"), UPDATE)
        found = texts(changed)
        assert found["LockDuration"] == "PT2M"
        assert found["MaxDeliveryCount"] == "14"
        assert found["DuplicateDetectionHistoryTimeWindow"] == "PT12M"
        assert found["MaxSizeInMegabytes"] == "3072"
        assert found["EnableExpress"] == "true"
        assert not {"ForwardTo", "ForwardDeadLetteredMessagesTo", "UserMetadata"} & set(found)
        assert found["UpdatedAt"] > found["CreatedAt"]
        known = admin.broker.find("ns", "orders")
        assert known is not None
        assert known.path == "orders"

    run(scenario)


def test_the_window_of_a_detection_that_is_off_comes_back() -> None:
    async def scenario(admin: AdminHarness) -> None:
        inner = "<DuplicateDetectionHistoryTimeWindow>PT7M</DuplicateDetectionHistoryTimeWindow>"
        await admin.put("orders", queue(inner))
        await admin.put("orders", queue(), UPDATE)
        got = texts(await admin.get("orders"))
        assert got["DuplicateDetectionHistoryTimeWindow"] == "PT7M"
        assert got["RequiresDuplicateDetection"] == "false"

    run(scenario)


def test_what_was_put_is_there_after_a_restart() -> None:
    catalog, store = MemoryCatalog(), MemoryStore()
    seen: list[dict[str, str]] = []

    async def make(admin: AdminHarness) -> None:
        await admin.put("target", queue())
        admin.clock.advance(1_000)
        await admin.put("orders", queue(written(CHOSEN)))
        admin.clock.advance(1_000)
        await admin.put("orders", queue(written(CHOSEN)), UPDATE)
        seen.append(texts(await admin.get("orders")))

    async def look(admin: AdminHarness) -> None:
        assert texts(await admin.get("orders")) == seen[0]

    run(make, catalog=catalog, stores={"store": store})
    run(look, catalog=catalog, stores={"store": MemoryStore()})


@pytest.mark.parametrize(
    ("inner", "words"),
    [
        ("<LockDuration>PT6M</LockDuration>", "exceeds the allowed maximum of '5' minutes"),
        ("<LockDuration>PT1S</LockDuration>", "LockDuration"),
        ("<MaxSizeInMegabytes>17</MaxSizeInMegabytes>", "The specified value 17 is invalid"),
        ("<MaxSizeInMegabytes>0</MaxSizeInMegabytes>", "MaxSizeInMegabytes"),
        ("<MaxDeliveryCount>0</MaxDeliveryCount>", "MaxDeliveryCount"),
        ("<MaxDeliveryCount>many</MaxDeliveryCount>", "not a whole number"),
        ("<AutoDeleteOnIdle>PT1M</AutoDeleteOnIdle>", "AutoDeleteOnIdle"),
        ("<Status>Asleep</Status>", "Status"),
        (f"<UserMetadata>{'x' * 1025}</UserMetadata>", "UserMetadata"),
        ("<MaxMessageSizeInKilobytes>102401</MaxMessageSizeInKilobytes>", "MaxMessageSize"),
        (
            "<DuplicateDetectionHistoryTimeWindow>P8D</DuplicateDetectionHistoryTimeWindow>",
            "between 5 seconds and 7 days",
        ),
        ("<ForwardTo>nowhere</ForwardTo>", "destination entity 'nowhere' does not exist"),
        ("<ForwardTo>a$b</ForwardTo>", "ForwardTo"),
    ],
)
def test_what_cannot_be_is_said_and_changes_nothing(inner: str, words: str) -> None:
    async def scenario(admin: AdminHarness) -> None:
        await admin.put("target", queue())
        status, detail = await admin.refusal("PUT", "orders", entry(queue(inner)))
        assert status == 400
        assert detail.startswith(("SubCode=40000. ", "SubCode=40400. "))
        assert words in detail
        assert admin.broker.find("ns", "orders") is None

    run(scenario)


def test_queues_do_not_forward_in_a_circle() -> None:
    async def scenario(admin: AdminHarness) -> None:
        await admin.put("a", queue())
        await admin.put("b", queue("<ForwardTo>a</ForwardTo>"))
        status, detail = await admin.refusal(
            "PUT", "a", entry(queue("<ForwardTo>b</ForwardTo>")), headers=UPDATE
        )
        assert (status, "cycle" in detail) == (400, True)
        # To itself it may: the hop limit ends that.
        await admin.put("a", queue("<ForwardTo>a</ForwardTo>"), UPDATE)

    run(scenario)


@pytest.mark.parametrize(
    ("inner", "words"),
    [
        (
            "<RequiresSession>true</RequiresSession>",
            "The value for the RequiresSession property of an existing Queue cannot be changed",
        ),
        (
            "<RequiresDuplicateDetection>true</RequiresDuplicateDetection>",
            "The value for the RequiresDuplicateDetection property of an existing Queue cannot be",
        ),
        (
            "<EnablePartitioning>true</EnablePartitioning>",
            "Partitioning cannot be changed for Queue",
        ),
    ],
)
def test_what_was_chosen_for_good_stays(inner: str, words: str) -> None:
    """R-P2."""

    async def scenario(admin: AdminHarness) -> None:
        before = texts(await admin.put("orders", queue()))
        status, detail = await admin.refusal("PUT", "orders", entry(queue(inner)), headers=UPDATE)
        assert status == 400
        assert words in detail
        assert texts(await admin.get("orders")) == before

    run(scenario)


def test_a_size_of_messages_is_known_from_2021_on() -> None:
    async def scenario(admin: AdminHarness) -> None:
        inner = "<MaxMessageSizeInKilobytes>2048</MaxMessageSizeInKilobytes>"
        status, detail = await admin.refusal(
            "PUT", "orders", entry(queue(inner)), version="2017-04"
        )
        assert (status, "MaxMessageSizeInKilobytes" in detail) == (400, True)
        await admin.put("orders", queue(inner), version="2021-05")
        assert text(await admin.get("orders"), "MaxMessageSizeInKilobytes") == "2048"
        assert (
            text(await admin.get("orders", version="2017-04"), "MaxMessageSizeInKilobytes") is None
        )

    run(scenario)


@pytest.mark.parametrize("make", [queue, topic])
def test_a_size_of_messages_is_within_bounds_or_as_it_was(make: Callable[[str], str]) -> None:
    def sized(kilobytes: int) -> str:
        return make(f"<MaxMessageSizeInKilobytes>{kilobytes}</MaxMessageSizeInKilobytes>")

    async def scenario(admin: AdminHarness) -> None:
        for wrong in (-1, 0, 256, 1_023, 102_401):
            status, detail = await admin.refusal("PUT", "one", entry(sized(wrong)))
            assert status == 400
            assert detail == (
                f"SubCode=40000. The specified value {wrong} is invalid. The property "
                "'MaxMessageSizeInKilobytes' must be between 1024 and 102400."
            )
        await admin.put("one", make(""))
        await admin.put("one", sized(256), UPDATE)
        await admin.put("one", sized(1_024), UPDATE)
        status, _ = await admin.refusal("PUT", "one", entry(sized(256)), headers=UPDATE)
        assert status == 400
        await admin.put("two", sized(102_400))
        # What the configuration file chose may be anything, and is sent back.
        await admin.broker.put_queue(QueueDefinition("small", message_size_max=64 * 1024))
        if make is queue:
            await admin.put("small", sized(64), UPDATE)
            assert text(await admin.get("small"), "MaxMessageSizeInKilobytes") == "64"

    run(scenario)


@pytest.mark.parametrize(
    "given", ["target", "sb://localhost:5300/target", "https://elsewhere/target/", "SB://h/Target"]
)
def test_a_destination_comes_back_as_it_was_given(given: str) -> None:
    async def scenario(admin: AdminHarness) -> None:
        await admin.put("target", queue())
        inner = f"<ForwardTo>{given}</ForwardTo><RequiresSession>true</RequiresSession>"
        inner += f"<ForwardDeadLetteredMessagesTo>{given}</ForwardDeadLetteredMessagesTo>"
        await admin.put("news", topic())
        for path, make in (("orders", queue), ("news/Subscriptions/s", subscription)):
            for headers in ({}, UPDATE):
                await admin.put(path, make(inner), headers)
                found = texts(await admin.get(path))
                assert found["ForwardTo"] == found["ForwardDeadLetteredMessagesTo"] == given
            await admin.put(path, make("<ForwardTo>target</ForwardTo>"), UPDATE)
            found = texts(await admin.get(path))
            assert (found["ForwardTo"], "ForwardDeadLetteredMessagesTo" in found) == (
                "target",
                False,
            )
            await admin.put(path, make(), UPDATE)
            assert "ForwardTo" not in texts(await admin.get(path))

    run(scenario)


def test_making_what_is_there_and_changing_what_is_not() -> None:
    async def scenario(admin: AdminHarness) -> None:
        await admin.put("orders", queue())
        for body in (queue(), topic()):
            status, detail = await admin.refusal("PUT", "Orders", entry(body))
            assert status == 409
            assert detail.startswith("SubCode=40900. Conflict.")
        status, detail = await admin.refusal("PUT", "other", entry(queue()), headers=UPDATE)
        assert (status, detail.startswith("SubCode=40400. Not Found.")) == (404, True)
        status, detail = await admin.refusal("DELETE", "other")
        assert status == 404
        assert detail == "No service is hosted at the specified address."

    run(scenario)


def test_counts_are_those_of_now() -> None:
    async def scenario(admin: AdminHarness) -> None:
        await admin.put("orders", queue())
        known = admin.broker.find("ns", "orders")
        assert isinstance(known, Queue)
        origin = Recorder()
        known.submit(SendMany(origin, [1, 2, 3, 4], [message(each) for each in "abcd"]))
        later = message("e", scheduled_at=admin.clock.now() + 60_000)
        known.submit(Schedule(origin, 5, [later]))
        known.submit(OpenReceiver(origin, 0, PEEK_LOCK))
        known.submit(Grant(origin, 3, True))
        await settle_down()
        held = [token(each) for each in origin.deliveries()]
        known.submit(SettleMany(origin, [6], Settlement(DEAD_LETTER), held[:1]))
        known.submit(SettleMany(origin, [7], Settlement(DEFER), held[1:2]))
        got = await admin.get("orders")
        assert counts(got) == {
            "ActiveMessageCount": 3,  # one ready, one locked, one deferred
            "DeadLetterMessageCount": 1,
            "ScheduledMessageCount": 1,
            "TransferMessageCount": 0,
            "TransferDeadLetterMessageCount": 0,
        }
        assert text(got, "MessageCount") == "5"
        assert text(got, "SizeInBytes") == "5"

    run(scenario)


def test_claimed_messages_are_counted_apart() -> None:
    """R-D1: in an element that the service does not have, and only where there are some."""

    async def scenario(admin: AdminHarness) -> None:
        await admin.put("orders", queue())
        known = admin.broker.find("ns", "orders")
        assert isinstance(known, Queue)
        known.submit(SendMany(Recorder(), [1, 2], [message(each) for each in "ab"]))
        known.submit(ClaimMessages(Recorder(), 3, 0, "me", 1, 1))
        got = await admin.get("orders")
        assert counts(got)["ActiveMessageCount"] == 1
        assert counts(got)["ClaimedMessageCount"] == 1
        assert text(got, "MessageCount") == "2"

    run(scenario)


def test_looking_at_a_queue_opens_nothing_and_is_no_use_of_it() -> None:
    async def scenario(admin: AdminHarness) -> None:
        await admin.put("orders", queue("<AutoDeleteOnIdle>PT5M</AutoDeleteOnIdle>"))
        known = admin.broker.find("ns", "orders")
        assert isinstance(known, Queue)
        await admin.bench.advance(200_000)
        await admin.get("orders")
        assert not known.partitions.workers[0].is_open
        await admin.bench.advance(101_000)
        assert admin.broker.find("ns", "orders") is None

    run(scenario)


def test_keys_are_good_at_once_and_bad_at_once() -> None:
    async def scenario(admin: AdminHarness) -> None:
        def rules(secret: str) -> str:
            return (
                '<AuthorizationRules><AuthorizationRule i:type="SharedAccessAuthorizationRule">'
                "<ClaimType>SharedAccessKey</ClaimType><ClaimValue>None</ClaimValue><Rights>"
                "<AccessRights>Manage</AccessRights><AccessRights>Send</AccessRights>"
                "<AccessRights>Listen</AccessRights></Rights><KeyName>owner</KeyName>"
                f"<PrimaryKey>{secret}</PrimaryKey></AuthorizationRule></AuthorizationRules>"
            )

        got = await admin.put("orders", queue(rules("one")))
        (found,) = [each for each in got.iter() if each.tag.endswith("}AuthorizationRule")]
        assert found.attrib == {
            "{http://www.w3.org/2001/XMLSchema-instance}type": "SharedAccessAuthorizationRule"
        }
        assert text(found, "KeyName") == "owner"
        assert text(found, "PrimaryKey") == "one"
        secondary = text(found, "SecondaryKey")
        assert secondary is not None
        assert len(secondary) == 44, "a key that nobody chose is made"
        one = {"authorization": admin.token("https://x/orders", "owner", "one")}
        assert (await admin.ask("GET", "orders", headers=one)).status == 200
        # A change that does not speak of keys leaves them, another one replaces them.
        await admin.put("orders", queue(), UPDATE)
        assert (await admin.ask("GET", "orders", headers=one)).status == 200
        await admin.put("orders", queue(rules("two")), UPDATE)
        assert (await admin.ask("GET", "orders", headers=one)).status == 401
        await admin.put("orders", queue("<AuthorizationRules/>"), UPDATE)
        two = {"authorization": admin.token("https://x/orders", "owner", "two")}
        assert (await admin.ask("GET", "orders", headers=two)).status == 401

    run(scenario)


@pytest.mark.parametrize(
    ("inner", "words"),
    [
        ("<KeyName>k</KeyName>", "gives no rights"),
        ("<Rights><AccessRights>Manage</AccessRights></Rights><KeyName>k</KeyName>", "Send and"),
        ("<Rights><AccessRights>Fly</AccessRights></Rights><KeyName>k</KeyName>", "'Fly'"),
        ("<Rights><AccessRights>Send</AccessRights></Rights>", "KeyName"),
    ],
)
def test_a_rule_that_cannot_be_is_refused(inner: str, words: str) -> None:
    async def scenario(admin: AdminHarness) -> None:
        body = (
            f"<AuthorizationRules><AuthorizationRule>{inner}</AuthorizationRule>"
            "</AuthorizationRules>"
        )
        status, detail = await admin.refusal("PUT", "orders", entry(queue(body)))
        assert (status, words in detail) == (400, True)
        assert admin.broker.find("ns", "orders") is None

    run(scenario)


def test_who_manages_one_entity_may_not_thereby_send_to_another() -> None:
    async def scenario(admin: AdminHarness) -> None:
        broker = admin.broker
        for path in ("orders", "target"):
            known = broker.find("ns", path)
            assert known is None
            await admin.put(path, queue())
        broker.namespaces.first.keys.set_entity_rules("orders", [key("owner", "one", MANAGE)])
        broker.namespaces.first.keys.set_entity_rules("target", [key("sender", "two", SEND)])
        mine = {**UPDATE, "authorization": admin.token("https://x/orders", "owner", "one")}
        body = entry(queue("<ForwardTo>target</ForwardTo>"))
        status, _ = await admin.refusal("PUT", "orders", body, headers=mine)
        assert status == 401
        theirs = admin.token("sb://localhost:5300/target", "sender", "two")
        both = {**mine, "servicebussupplementaryauthorization": theirs}
        assert (await admin.ask("PUT", "orders", body, both)).status == 200
        # What stays needs no second token, and dead letters have a header of their own.
        broker.namespaces.first.keys.set_entity_rules("orders", [key("owner", "one", MANAGE)])
        assert (await admin.ask("PUT", "orders", body, mine)).status == 200
        broker.namespaces.first.keys.set_entity_rules("orders", [key("owner", "one", MANAGE)])
        dead = "<ForwardDeadLetteredMessagesTo>target</ForwardDeadLetteredMessagesTo>"
        assert (await admin.ask("PUT", "orders", entry(queue(dead)), both)).status == 401
        broker.namespaces.first.keys.set_entity_rules("orders", [key("owner", "one", MANAGE)])
        other = {**mine, "servicebusdlqsupplementaryauthorization": theirs}
        assert (await admin.ask("PUT", "orders", entry(queue(dead)), other)).status == 200

    run(scenario)


@pytest.mark.parametrize("host", ["localhost:5300", "localhost", "ns.servicebus.windows.net"])
def test_a_host_alone_is_the_namespace_in_the_second_token(host: str) -> None:
    """As the client for JavaScript signs it."""

    async def scenario(admin: AdminHarness) -> None:
        await admin.put("target", queue())
        headers = {"servicebussupplementaryauthorization": admin.token(host)}
        body = entry(queue("<ForwardTo>target</ForwardTo>"))
        assert (await admin.ask("PUT", "orders", body, headers)).status == 201

    run(scenario)


@pytest.mark.parametrize("host", ["mine", "gone", "a/b", "mine:5300"])
def test_a_host_that_the_request_chose_widens_no_token(host: str) -> None:
    """A token for one entity was one for all, where `Host` said the entity's name."""

    async def scenario(admin: AdminHarness) -> None:
        for path in ("target", "mine"):
            await admin.put(path, queue())
        headers = {
            "host": host,
            "authorization": admin.token(f"https://{HOST}/orders"),
            "servicebussupplementaryauthorization": admin.token(host.partition(":")[0]),
        }
        body = entry(queue("<ForwardTo>target</ForwardTo>"))
        status, _ = await admin.refusal("PUT", "orders", body, headers=headers)
        assert status == 401
        assert admin.broker.find("ns", "orders") is None

    run(scenario)


def test_an_entity_with_a_name_of_ours_is_an_entity() -> None:
    async def scenario(admin: AdminHarness) -> None:
        for path in ("target", "localhost"):
            await admin.put(path, queue())
        headers = {"servicebussupplementaryauthorization": admin.token("localhost")}
        body = entry(queue("<ForwardTo>target</ForwardTo>"))
        status, _ = await admin.refusal("PUT", "orders", body, headers=headers)
        assert status == 401

    run(scenario)
