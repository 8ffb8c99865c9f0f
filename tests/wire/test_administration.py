"""Administration with the official Python client in both flavours: every operation and property.

Only the trusted authority is given besides the connection string; the rest is the client's own.
"""

import itertools
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.core.exceptions import (
    ClientAuthenticationError,
    HttpResponseError,
    ResourceExistsError,
    ResourceNotFoundError,
)
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusSubQueue
from azure.servicebus.exceptions import ServiceBusError
from azure.servicebus.management import (
    AccessRights,
    ApiVersion,
    AuthorizationRule,
    CorrelationRuleFilter,
    FalseRuleFilter,
    SqlRuleAction,
    SqlRuleFilter,
    TrueRuleFilter,
)

from tests.wire import sas
from tests.wire.administration import Administration, open_clerk
from tests.wire.broker_process import BrokerProcess
from tests.wire.clients import FLAVOURS, LoopThread

pytestmark = pytest.mark.filterwarnings(
    "ignore:ssl=None is deprecated:DeprecationWarning", "ignore:unclosed"
)

NUMBERS = itertools.count(1)
NEVER_DAYS = 10_675_199
MINUTES = timedelta(minutes=1)
Wish = Callable[[], Any]


@pytest.fixture(params=FLAVOURS)
def clerk(
    request: pytest.FixtureRequest, broker: BrokerProcess, loop: LoopThread
) -> Iterator[Administration]:
    made = open_clerk(request.param, broker, loop)
    yield made
    made.close()


@pytest.fixture
def name() -> str:
    return f"adm.{next(NUMBERS)}"


def properties(thing: Any) -> dict[str, Any]:
    return {key: value for key, value in vars(thing).items() if not key.startswith("_")}


@pytest.mark.smoke
def test_a_queue_has_the_defaults_of_the_service(clerk: Administration, name: str) -> None:
    clerk.create_queue(name)
    found = properties(clerk.get_queue(name))
    assert found.pop("default_message_time_to_live").days == NEVER_DAYS
    assert found.pop("auto_delete_on_idle").days == NEVER_DAYS
    assert found == {
        "name": name,
        "authorization_rules": None,
        "availability_status": "Available",
        "dead_lettering_on_message_expiration": False,
        "duplicate_detection_history_time_window": 10 * MINUTES,
        "enable_batched_operations": True,
        "enable_express": False,
        "enable_partitioning": False,
        "forward_dead_lettered_messages_to": None,
        "forward_to": None,
        "lock_duration": MINUTES,
        "max_delivery_count": 10,
        "max_message_size_in_kilobytes": 256,
        "max_size_in_megabytes": 1024,
        "requires_duplicate_detection": False,
        "requires_session": False,
        "status": "Active",
        "user_metadata": None,
    }
    clerk.delete_queue(name)


def test_every_property_of_a_queue_is_kept(clerk: Administration, name: str) -> None:
    target = f"{name}/target"
    clerk.create_queue(target)
    chosen: dict[str, Any] = {
        "auto_delete_on_idle": 10 * MINUTES,
        "dead_lettering_on_message_expiration": True,
        "default_message_time_to_live": 11 * MINUTES,
        "duplicate_detection_history_time_window": 12 * MINUTES,
        "enable_batched_operations": False,
        "enable_express": True,
        "lock_duration": timedelta(seconds=13),
        "max_delivery_count": 14,
        "max_message_size_in_kilobytes": 1024,
        "max_size_in_megabytes": 3072,
        "requires_duplicate_detection": True,
        "user_metadata": "<meta> & 'data'",
    }
    made = clerk.create_queue(
        name, forward_to=target, forward_dead_lettered_messages_to=target, **chosen
    )
    for found in (properties(made), properties(clerk.get_queue(name))):
        assert {key: found[key] for key in chosen} == chosen
        assert found["forward_to"].endswith(f"/{target}")
        assert found["forward_dead_lettered_messages_to"].endswith(f"/{target}")
    queue = clerk.get_queue(name)
    queue.lock_duration = 2 * MINUTES
    queue.forward_to = None
    queue.status = "SendDisabled"
    clerk.update_queue(queue)
    found = properties(clerk.get_queue(name))
    assert found["lock_duration"] == 2 * MINUTES
    assert found["forward_to"] is None
    assert found["status"] == "SendDisabled"
    assert found["forward_dead_lettered_messages_to"].endswith(f"/{target}")
    kept = {key: value for key, value in chosen.items() if key != "lock_duration"}
    assert {key: found[key] for key in kept} == kept
    clerk.update_queue(clerk.get_queue(name), max_delivery_count=3)
    assert clerk.get_queue(name).max_delivery_count == 3
    for each in (name, target):
        clerk.delete_queue(each)


def test_a_partitioned_queue_stays_partitioned(clerk: Administration, name: str) -> None:
    """R-P2, R-P9."""
    clerk.create_queue(name, enable_partitioning=True, requires_session=True)
    queue = clerk.get_queue(name)
    assert queue.enable_partitioning
    assert queue.requires_session
    assert queue.max_size_in_megabytes == 16 * 1024
    clerk.update_queue(queue)
    for change in ({"enable_partitioning": False}, {"requires_session": False}):
        with pytest.raises(HttpResponseError, match="cannot be changed"):
            clerk.update_queue(clerk.get_queue(name), **change)
    assert clerk.get_queue(name).enable_partitioning
    clerk.delete_queue(name)


def test_counts_are_right_right_after_the_operation(
    clerk: Administration, broker: BrokerProcess, name: str
) -> None:
    for path, is_partitioned in ((name, False), (f"{name}.p", True)):
        clerk.create_queue(path, enable_partitioning=is_partitioned)
        with ServiceBusClient.from_connection_string(broker.connection_string) as bus:
            check_counts(clerk, bus, path)
        clerk.delete_queue(path)


def check_counts(clerk: Administration, bus: ServiceBusClient, path: str) -> None:
    def counted() -> tuple[int, ...]:
        found = clerk.get_queue_runtime_properties(path)
        parts = (
            found.active_message_count,
            found.dead_letter_message_count,
            found.scheduled_message_count,
            found.transfer_message_count,
            found.transfer_dead_letter_message_count,
        )
        assert found.total_message_count == sum(parts)
        return parts

    fresh = clerk.get_queue_runtime_properties(path)
    assert fresh.accessed_at_utc.year == 1
    assert fresh.size_in_bytes == 0
    assert counted() == (0, 0, 0, 0, 0)
    with bus.get_queue_sender(path) as sender, bus.get_queue_receiver(path) as receiver:
        sender.send_messages([ServiceBusMessage("x") for _ in range(4)])
        assert counted() == (4, 0, 0, 0, 0)
        (number,) = sender.schedule_messages(
            ServiceBusMessage("later"), datetime.now(UTC) + timedelta(hours=1)
        )
        assert counted() == (4, 0, 1, 0, 0)
        held: list[Any] = []
        while len(held) < 3:
            held += receiver.receive_messages(3 - len(held), max_wait_time=5)
        receiver.dead_letter_message(held[0])
        assert counted() == (3, 1, 1, 0, 0)
        receiver.defer_message(held[1])
        assert counted() == (3, 1, 1, 0, 0), "what is deferred is active to the service"
        receiver.complete_message(held[2])
        assert counted() == (2, 1, 1, 0, 0)
        sender.cancel_scheduled_messages(number)
        assert counted() == (2, 1, 0, 0, 0)
    after = clerk.get_queue_runtime_properties(path)
    assert after.size_in_bytes > 0
    assert after.created_at_utc <= after.updated_at_utc <= after.accessed_at_utc


def test_what_is_not_there_and_what_is_there_already(clerk: Administration, name: str) -> None:
    clerk.create_queue(name)
    clerk.create_topic(f"{name}.t")
    clerk.create_subscription(f"{name}.t", "s")
    taken: list[Wish] = [
        lambda: clerk.create_queue(name),
        lambda: clerk.create_topic(name),
        lambda: clerk.create_subscription(f"{name}.t", "s"),
        lambda: clerk.create_rule(f"{name}.t", "s", "$Default"),
    ]
    for wish in taken:
        with pytest.raises(ResourceExistsError):
            wish()
    missing: list[Wish] = [
        lambda: clerk.get_queue("no"),
        lambda: clerk.get_queue_runtime_properties("no"),
        lambda: clerk.get_topic("no"),
        lambda: clerk.get_topic_runtime_properties("no"),
        lambda: clerk.get_subscription(f"{name}.t", "no"),
        lambda: clerk.get_subscription_runtime_properties("no", "no"),
        lambda: clerk.get_rule(f"{name}.t", "s", "no"),
        lambda: clerk.delete_queue("no"),
        lambda: clerk.delete_topic("no"),
        lambda: clerk.delete_subscription(f"{name}.t", "no"),
        lambda: clerk.delete_rule(f"{name}.t", "s", "no"),
        lambda: clerk.create_subscription("no", "s"),
    ]
    for wish in missing:
        with pytest.raises(ResourceNotFoundError):
            wish()
    gone = clerk.get_queue(name)
    clerk.delete_queue(name)
    with pytest.raises(ResourceNotFoundError):
        clerk.update_queue(gone)
    clerk.delete_topic(f"{name}.t")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"lock_duration": 6 * MINUTES}, "maximum of '5' minutes"),
        ({"max_size_in_megabytes": 17}, "The specified value 17 is invalid"),
        ({"forward_to": "adm.nowhere"}, "destination entity"),
        ({"auto_delete_on_idle": MINUTES}, "AutoDeleteOnIdle"),
        ({"user_metadata": "x" * 1025}, "UserMetadata"),
    ],
)
def test_what_cannot_be_is_said(clerk: Administration, name: str, options: Any, words: str) -> None:
    with pytest.raises(HttpResponseError, match=words) as error:
        clerk.create_queue(name, **options)
    assert error.value.status_code == 400
    with pytest.raises(ResourceNotFoundError):
        clerk.get_queue(name)


def test_every_property_of_a_topic_is_kept(clerk: Administration, name: str) -> None:
    chosen: dict[str, Any] = {
        "auto_delete_on_idle": 10 * MINUTES,
        "default_message_time_to_live": 11 * MINUTES,
        "duplicate_detection_history_time_window": 12 * MINUTES,
        "enable_batched_operations": False,
        "enable_express": True,
        "max_message_size_in_kilobytes": 1024,
        "max_size_in_megabytes": 2048,
        "requires_duplicate_detection": True,
        "support_ordering": False,
        "user_metadata": "noted",
    }
    made = clerk.create_topic(name, **chosen)
    for found in (properties(made), properties(clerk.get_topic(name))):
        assert {key: found[key] for key in chosen} == chosen
    topic = clerk.get_topic(name)
    topic.default_message_time_to_live = 20 * MINUTES
    topic.status = "Disabled"
    clerk.update_topic(topic)
    found = properties(clerk.get_topic(name))
    assert found["default_message_time_to_live"] == 20 * MINUTES
    assert found["status"] == "Disabled"
    assert found["user_metadata"] == "noted"
    clerk.create_subscription(name, "s")
    clerk.create_rule(name, "s", "r", filter=SqlRuleFilter("x = 1"))
    live = clerk.get_topic_runtime_properties(name)
    assert (live.subscription_count, live.sql_filter_count) == (1, 2)
    assert (live.correlation_filter_count, live.scheduled_message_count) == (0, 0)
    clerk.delete_topic(name)


def test_every_property_of_a_subscription_is_kept(
    clerk: Administration, broker: BrokerProcess, name: str
) -> None:
    clerk.create_queue(f"{name}.q")
    clerk.create_topic(name)
    chosen: dict[str, Any] = {
        "auto_delete_on_idle": 10 * MINUTES,
        "dead_lettering_on_filter_evaluation_exceptions": False,
        "dead_lettering_on_message_expiration": True,
        "default_message_time_to_live": 11 * MINUTES,
        "enable_batched_operations": False,
        "lock_duration": timedelta(seconds=13),
        "max_delivery_count": 14,
        "requires_session": True,
        "user_metadata": "noted",
    }
    made = clerk.create_subscription(
        name, "some", forward_dead_lettered_messages_to=f"{name}.q", **chosen
    )
    for found in (properties(made), properties(clerk.get_subscription(name, "some"))):
        assert {key: found[key] for key in chosen} == chosen
        assert found["forward_dead_lettered_messages_to"].endswith(f"/{name}.q")
    subscription = clerk.get_subscription(name, "some")
    subscription.max_delivery_count = 3
    clerk.update_subscription(name, subscription)
    assert clerk.get_subscription(name, "some").max_delivery_count == 3
    clerk.create_subscription(name, "plain")
    with ServiceBusClient.from_connection_string(broker.connection_string) as bus:
        with bus.get_topic_sender(name) as sender:
            sender.send_messages(ServiceBusMessage("x", session_id="s"))
        live = clerk.get_subscription_runtime_properties(name, "plain")
        assert (live.active_message_count, live.total_message_count) == (1, 1)
        with bus.get_subscription_receiver(name, "plain") as receiver:
            (held,) = receiver.receive_messages(1, max_wait_time=5)
            receiver.dead_letter_message(held)
    live = clerk.get_subscription_runtime_properties(name, "plain")
    assert (live.active_message_count, live.dead_letter_message_count) == (0, 1)
    names = [each.name for each in clerk.list_subscriptions(name)]
    assert names == ["plain", "some"]
    listed = clerk.list_subscriptions_runtime_properties(name)
    assert [each.total_message_count for each in listed] == [1, 1]
    for each in names:
        clerk.delete_subscription(name, each)
    clerk.delete_topic(name)
    clerk.delete_queue(f"{name}.q")


def test_rules_keep_their_texts_and_values(clerk: Administration, name: str) -> None:
    clerk.create_topic(name)
    clerk.create_subscription(name, "s")
    (first,) = clerk.list_rules(name, "s")
    assert first.name == "$Default"
    assert isinstance(first.filter, TrueRuleFilter)
    values: dict[str, Any] = {
        "@text": "x",
        "@int": 5,
        "@long": 10**12,
        "@double": 1.5,
        "@flag": True,
        "@instant": datetime(2020, 1, 2, 3, 4, 5, tzinfo=UTC),
        "@duration": timedelta(seconds=90),
    }
    words = "a = @text AND b =  @int OR (c < @long)\n AND d=@double AND e=@flag AND f=@instant"
    words += " AND g = @duration"
    clerk.create_rule(
        name,
        "s",
        "sql",
        filter=SqlRuleFilter(words, parameters=values),
        action=SqlRuleAction("SET z = @int", parameters={"@int": 7}),
    )
    rule = clerk.get_rule(name, "s", "sql")
    assert rule.filter.sql_expression == words
    assert dict(rule.filter.parameters) == values
    assert rule.action.sql_expression == "SET z = @int"
    assert dict(rule.action.parameters) == {"@int": 7}
    assert rule.created_at_utc.year > 2000
    fields: dict[str, Any] = {
        "correlation_id": "c",
        "message_id": "m",
        "to": "t",
        "reply_to": "r",
        "label": "l",
        "session_id": "s",
        "reply_to_session_id": "rs",
        "content_type": "ct",
        "properties": {"k": "v", "n": 3, "f": False},
    }
    clerk.create_rule(name, "s", "correlation", filter=CorrelationRuleFilter(**fields))
    found = clerk.get_rule(name, "s", "correlation")
    assert vars(found.filter) | {"properties": dict(found.filter.properties)} == fields
    assert found.action is None
    found.filter = FalseRuleFilter()
    clerk.update_rule(name, "s", found)
    assert isinstance(clerk.get_rule(name, "s", "correlation").filter, FalseRuleFilter)
    with pytest.raises(HttpResponseError, match="Failed to parse"):
        clerk.create_rule(name, "s", "bad", filter=SqlRuleFilter("a = = b"))
    for number in range(101):
        clerk.create_rule(name, "s", f"r{number}", filter=SqlRuleFilter("x = 1"))
    names = [each.name for each in clerk.list_rules(name, "s")]
    assert names == ["$Default", *sorted(["sql", "correlation", *(f"r{n}" for n in range(101))])]
    clerk.delete_rule(name, "s", "sql")
    assert len(clerk.list_rules(name, "s")) == 103
    clerk.delete_topic(name)


def test_lists_have_pages(clerk: Administration, name: str) -> None:
    made = [f"{name}.page/{number}" for number in range(5)]
    for each in made:
        clerk.create_queue(each)
        clerk.create_topic(f"{each}.t")
    topics = [f"{each}.t" for each in made]
    # The shared broker has hundreds of queues, so that there are many pages of these too.
    for size in (37, 100):
        found = [each.name for each in clerk.list_queues(max_page_size=size)]
        assert [each for each in found if each.startswith(f"{name}.page")] == made
        assert len(found) == len(set(found)), "nothing comes twice"
        live = [each.name for each in clerk.list_queues_runtime_properties(max_page_size=size)]
        assert live == found
    found = [each.name for each in clerk.list_topics(max_page_size=37)]
    assert [each for each in found if each.startswith(f"{name}.page")] == topics
    assert [each.name for each in clerk.list_topics_runtime_properties()] == found
    for each in made:
        clerk.delete_queue(each)
        clerk.delete_topic(f"{each}.t")


def test_keys_of_an_entity_are_good_at_once(
    clerk: Administration, broker: BrokerProcess, name: str
) -> None:
    rule = AuthorizationRule(
        type="SharedAccessAuthorizationRule",
        claim_type="SharedAccessKey",
        claim_value="None",
        rights=[AccessRights.SEND],
        key_name="sender",
        primary_key="cHJpbWFyeQ==",
        secondary_key="c2Vjb25kYXJ5",
    )
    clerk.create_queue(name, authorization_rules=[rule])
    (found,) = clerk.get_queue(name).authorization_rules
    assert vars(found) == vars(rule), "it has no times that it was not sent with"
    text = sas.connection_string(broker.amqp_port, rule="sender", key="c2Vjb25kYXJ5", entity=name)
    with ServiceBusClient.from_connection_string(text, retry_total=0) as bus:
        with bus.get_queue_sender(name) as sender:
            sender.send_messages(ServiceBusMessage("x"))
        with pytest.raises(ServiceBusError), bus.get_queue_receiver(name) as receiver:
            receiver.receive_messages(1, max_wait_time=5)
    queue = clerk.get_queue(name)
    queue.authorization_rules = []
    clerk.delete_queue(name)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_who_may_not_manage_is_told_so(
    broker: BrokerProcess, loop: LoopThread, flavour: str
) -> None:
    for text in (
        sas.connection_string(broker.http_port, key="wrong"),
        sas.connection_string(broker.http_port, rule="nobody"),
    ):
        clerk = open_clerk(flavour, broker, loop, text)
        with pytest.raises(ClientAuthenticationError):
            clerk.get_queue("any")
        with pytest.raises(ClientAuthenticationError):
            clerk.create_queue("any")
        clerk.close()


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_older_versions_of_the_protocol(
    broker: BrokerProcess, loop: LoopThread, flavour: str, name: str
) -> None:
    for version in (ApiVersion.V2017_04, ApiVersion.V2021_05):
        clerk = open_clerk(flavour, broker, loop, api_version=version)
        clerk.create_queue(name)
        size = clerk.get_queue(name).max_message_size_in_kilobytes
        assert size == (None if version == ApiVersion.V2017_04 else 256)
        clerk.update_queue(clerk.get_queue(name))
        if version == ApiVersion.V2017_04:
            with pytest.raises(HttpResponseError):
                clerk.create_queue(f"{name}.x", max_message_size_in_kilobytes=1024)
        clerk.delete_queue(name)
        clerk.close()


def test_the_namespace_says_who_it_is(clerk: Administration) -> None:
    found = clerk.get_namespace_properties()
    assert found.name == "sbemulatorns"
    assert found.messaging_sku == "Standard"
    assert found.namespace_type == "Messaging"
    assert found.created_at_utc.year > 2000


def test_forwarding_that_was_set_up_here_forwards(
    clerk: Administration, broker: BrokerProcess, name: str
) -> None:
    clerk.create_queue(f"{name}.end")
    clerk.create_queue(name, forward_to=f"{name}.end")
    with ServiceBusClient.from_connection_string(broker.connection_string) as bus:
        with bus.get_queue_sender(name) as sender:
            sender.send_messages(ServiceBusMessage("x"))
        with bus.get_queue_receiver(f"{name}.end") as receiver:
            (held,) = receiver.receive_messages(1, max_wait_time=10)
            receiver.dead_letter_message(held)
        dead = ServiceBusSubQueue.DEAD_LETTER
        with bus.get_queue_receiver(f"{name}.end", sub_queue=dead) as receiver:
            assert len(receiver.receive_messages(1, max_wait_time=10)) == 1
    for each in (name, f"{name}.end"):
        clerk.delete_queue(each)


def test_all_of_it_is_there_after_a_restart(
    own_broker: BrokerProcess, loop: LoopThread, name: str
) -> None:
    clerk = open_clerk("sync", own_broker, loop)
    clerk.create_queue(name, user_metadata="kept", enable_express=True)
    clerk.create_topic(f"{name}.t")
    clerk.create_subscription(f"{name}.t", "s")
    clerk.create_rule(f"{name}.t", "s", "r", filter=SqlRuleFilter("x = 1"))
    before = properties(clerk.get_queue(name))
    clerk.close()
    own_broker.kill()
    own_broker.start()
    clerk = open_clerk("sync", own_broker, loop)
    assert properties(clerk.get_queue(name)) == before
    assert [each.name for each in clerk.list_rules(f"{name}.t", "s")] == ["$Default", "r"]
    clerk.close()
