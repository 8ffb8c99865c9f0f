"""Our administration clients, blocking and for asyncio: what one makes, the official one reads."""

import itertools
import pickle
from collections.abc import Callable, Iterator
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential
from azure.servicebus import management as official
from azure.servicebus.management import ServiceBusAdministrationClient as OfficialClient

from peeklock.client import administration, blocking
from peeklock.client.administration import (
    FOREVER,
    AccessRights,
    AuthorizationRule,
    ClientAuthenticationError,
    CorrelationRuleFilter,
    EntityStatus,
    FalseRuleFilter,
    HttpResponseError,
    ResourceExistsError,
    ResourceNotFoundError,
    RuleProperties,
    ServiceBusAdministrationClient,
    ServiceRequestError,
    ServiceResponseError,
    SqlRuleAction,
    SqlRuleFilter,
    TrueRuleFilter,
)
from peeklock.client.administration.blocking import (
    ServiceBusAdministrationClient as BlockingAdministrationClient,
)
from peeklock.client.administration.rules import RuleValue
from peeklock.client.exceptions import ServiceBusError
from tests.wire import sas
from tests.wire.broker_process import BrokerProcess, free_port
from tests.wire.clients import FLAVOURS, LoopThread
from tests.wire.entities import ROOT_KEY, ROOT_RULE

pytestmark = pytest.mark.filterwarnings("ignore:unclosed")

NUMBERS = itertools.count(1)
MINUTES = timedelta(minutes=1)
EVERYTHING: dict[str, Any] = {
    "auto_delete_on_idle": 10 * MINUTES,
    "dead_lettering_on_message_expiration": True,
    "default_message_time_to_live": 11 * MINUTES,
    "duplicate_detection_history_time_window": 12 * MINUTES,
    "enable_batched_operations": False,
    "lock_duration": timedelta(seconds=45, milliseconds=500),
    "max_delivery_count": 7,
    "max_size_in_megabytes": 2048,
    "requires_duplicate_detection": True,
    "requires_session": True,
    "user_metadata": 'a <b> & "c"\r\n',
}


class Admin:
    """One client of ours; the one for asyncio is waited for, and lists are read whole."""

    def __init__(self, client: Any, loop: LoopThread | None) -> None:
        self._client = client
        self._loop = loop

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._client, name)
        loop = self._loop
        if loop is None:
            return lambda *args, **kwargs: _listed(method(*args, **kwargs))

        async def call(*args: Any, **kwargs: Any) -> Any:
            result = method(*args, **kwargs)
            if hasattr(result, "__aiter__"):
                return [each async for each in result]
            return await result

        return lambda *args, **kwargs: loop.call(call, *args, **kwargs)


def _listed(result: Any) -> Any:
    return list(result) if isinstance(result, Iterator) else result


def opened(flavour: str, loop: LoopThread, text: str, **options: Any) -> Admin:
    if flavour == "sync":
        return Admin(BlockingAdministrationClient.from_connection_string(text, **options), None)
    return Admin(ServiceBusAdministrationClient.from_connection_string(text, **options), loop)


@pytest.fixture(params=FLAVOURS)
def admin(
    request: pytest.FixtureRequest, broker: BrokerProcess, loop: LoopThread
) -> Iterator[Admin]:
    made = opened(request.param, loop, sas.connection_string(broker.http_port))
    yield made
    made.close()


@pytest.fixture
def other(broker: BrokerProcess) -> Iterator[OfficialClient]:
    text = sas.connection_string(broker.http_port)
    options: dict[str, Any] = {"connection_verify": str(broker.authority), "retry_total": 0}
    with OfficialClient.from_connection_string(text, **options) as client:
        yield client


@pytest.fixture
def name() -> str:
    return f"own.adm.{next(NUMBERS)}"


def assert_same(ours: Any, theirs: Any) -> None:
    """What we read is what the official client reads, attribute by attribute."""
    for each in fields(ours):
        if not hasattr(theirs, each.name):
            assert each.name in ("partition_count", "unlock_on_disconnect")
            continue
        mine, its = getattr(ours, each.name), getattr(theirs, each.name)
        if each.name == "authorization_rules":
            assert _keys(mine) == _keys(its or [])
        elif isinstance(its, timedelta):
            assert abs(mine - its) < timedelta(milliseconds=1), each.name
        else:
            assert mine == its, each.name


def _keys(rules: list[Any]) -> list[tuple[Any, ...]]:
    return [
        (
            rule.key_name,
            set(rule.rights),
            rule.primary_key,
            rule.secondary_key,
            rule.created_at_utc,
            rule.modified_at_utc,
        )
        for rule in rules
    ]


@pytest.mark.smoke
def test_a_queue_is_the_same_to_both(admin: Admin, other: OfficialClient, name: str) -> None:
    rights: list[AccessRights | str] = [AccessRights.SEND, AccessRights.LISTEN]
    at = datetime(2024, 5, 1, 10, 0, 0, 500_000, UTC)
    key = AuthorizationRule("shop", rights, "one", "two", at, at + MINUTES)
    made = admin.create_queue(name, authorization_rules=[key], **EVERYTHING)
    assert {key: getattr(made, key) for key in EVERYTHING} == EVERYTHING
    assert_same(admin.get_queue(name), other.get_queue(name))
    assert made.status is EntityStatus.ACTIVE

    made.max_delivery_count = 3
    admin.update_queue(made, status=EntityStatus.DISABLED)
    theirs = other.get_queue(name)
    assert (theirs.max_delivery_count, theirs.status) == (3, "Disabled")
    theirs.lock_duration = "PT20S"
    other.update_queue(theirs)
    assert admin.get_queue(name).lock_duration == timedelta(seconds=20)
    assert _keys(admin.get_queue(name).authorization_rules) == [
        ("shop", {"Send", "Listen"}, "one", "two", at, at + MINUTES)
    ]
    # What is not spoken of stays.
    admin.update_queue({"name": name, "max_delivery_count": 4})
    changed = admin.get_queue(name)
    assert changed.max_delivery_count == 4
    assert [rule.key_name for rule in changed.authorization_rules] == ["shop"]
    admin.delete_queue(name)
    with pytest.raises(ResourceNotFoundError, match=f"there is no queue '{name}'"):
        admin.get_queue(name)


def test_what_nobody_chose_is_the_same_to_both(
    admin: Admin, other: OfficialClient, name: str
) -> None:
    other.create_queue(f"{name}/q")
    other.create_topic(f"{name}/t")
    other.create_subscription(f"{name}/t", "s")
    assert_same(admin.get_queue(f"{name}/q"), other.get_queue(f"{name}/q"))
    assert_same(admin.get_topic(f"{name}/t"), other.get_topic(f"{name}/t"))
    ours = admin.get_subscription(f"{name}/t", "s")
    assert_same(ours, other.get_subscription(f"{name}/t", "s"))
    assert ours.default_message_time_to_live == FOREVER
    admin.delete_queue(f"{name}/q")
    admin.delete_topic(f"{name}/t")


def test_a_topic_and_its_subscriptions(admin: Admin, other: OfficialClient, name: str) -> None:
    admin.create_topic(name, support_ordering=True, default_message_time_to_live="PT3M")
    assert_same(admin.get_topic(name), other.get_topic(name))
    admin.update_topic({"name": name, "user_metadata": "mine"})
    assert other.get_topic(name).user_metadata == "mine"
    assert other.get_topic(name).default_message_time_to_live == 3 * MINUTES

    first = RuleProperties("big", SqlRuleFilter("amount > @least", {"@least": 100}))
    admin.create_subscription(
        name,
        "s",
        default_rule=first,
        requires_session=True,
        dead_lettering_on_filter_evaluation_exceptions=False,
    )
    admin.create_subscription(name, "forwarding", forward_to=name)
    assert_same(admin.get_subscription(name, "s"), other.get_subscription(name, "s"))
    forwarding = admin.get_subscription(name, "forwarding")
    assert forwarding.forward_to.endswith(name)
    admin.update_subscription(name, forwarding, forward_to="", max_delivery_count=2)
    assert other.get_subscription(name, "forwarding").max_delivery_count == 2
    assert [rule.name for rule in admin.list_rules(name, "s")] == ["big"]
    listed = [each.name for each in admin.list_subscriptions(name)]
    assert listed == [each.name for each in other.list_subscriptions(name)]
    counts = admin.list_subscriptions_runtime_properties(name)
    assert [each.total_message_count for each in counts] == [0, 0]
    admin.delete_subscription(name, "s")
    with pytest.raises(ResourceNotFoundError):
        admin.get_subscription_runtime_properties(name, "s")
    admin.delete_topic(name)


def test_rules_are_the_same_to_both(admin: Admin, other: OfficialClient, name: str) -> None:
    admin.create_topic(name)
    admin.create_subscription(name, "s")
    instant = datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC)
    typed: dict[str, RuleValue]
    typed = {"text": "a", "whole": 5, "part": 2.5, "yes": True, "at": instant, "for": 2 * MINUTES}
    filters: dict[str, Any] = {
        "all": TrueRuleFilter(),
        "none": FalseRuleFilter(),
        "sql": SqlRuleFilter("a = @a AND b < 'x & y'", {"@a": 5}),
        "correlation": CorrelationRuleFilter(label="red", to="me", properties=typed),
    }
    for rule_name, filter in filters.items():
        admin.create_rule(name, "s", rule_name, filter=filter)
    action = SqlRuleAction("SET a = @v", {"@v": "text"})
    admin.create_rule(name, "s", "acting", action=action)
    for rule_name, filter in filters.items():
        assert admin.get_rule(name, "s", rule_name).filter == filter
    assert admin.get_rule(name, "s", "acting").action == action

    theirs: dict[str, Any] = {rule.name: rule for rule in other.list_rules(name, "s")}
    assert set(theirs) == {*filters, "acting", "$Default"}
    assert theirs["correlation"].filter.label == "red"
    assert theirs["sql"].filter.sql_expression == filters["sql"].sql_expression
    assert theirs["sql"].filter.parameters == {"@a": 5}
    assert theirs["acting"].action.sql_expression == action.sql_expression

    other.create_rule(
        name, "s", "theirs", filter=official.CorrelationRuleFilter(properties={"n": 7, "s": "x"})
    )
    found = admin.get_rule(name, "s", "theirs")
    assert found.filter == CorrelationRuleFilter(properties={"n": 7, "s": "x"})
    assert found.created_at_utc == other.get_rule(name, "s", "theirs").created_at_utc
    admin.update_rule(name, "s", found, filter=FalseRuleFilter(), action=action)
    assert isinstance(other.get_rule(name, "s", "theirs").filter, official.FalseRuleFilter)
    admin.delete_rule(name, "s", "theirs")
    with pytest.raises(ResourceNotFoundError):
        admin.get_rule(name, "s", "theirs")
    admin.delete_topic(name)


def test_counts_and_times(
    admin: Admin, other: OfficialClient, broker: BrokerProcess, name: str
) -> None:
    admin.create_topic(name)
    admin.create_queue(f"{name}/q")
    admin.create_subscription(name, "s")
    with blocking.ServiceBusClient.from_connection_string(broker.connection_string) as client:
        for sender in (client.get_queue_sender(f"{name}/q"), client.get_topic_sender(name)):
            with sender:
                message = blocking.ServiceBusMessage("hello")
                sender.send_messages(message)
                sender.schedule_messages(message, datetime.now(UTC) + timedelta(hours=1))
    queue = admin.get_queue_runtime_properties(f"{name}/q")
    assert (queue.active_message_count, queue.scheduled_message_count) == (1, 1)
    assert queue.size_in_bytes > 0
    assert_same(queue, other.get_queue_runtime_properties(f"{name}/q"))
    assert_same(admin.get_topic_runtime_properties(name), other.get_topic_runtime_properties(name))
    subscription = admin.get_subscription_runtime_properties(name, "s")
    assert subscription.active_message_count == 1
    assert_same(subscription, other.get_subscription_runtime_properties(name, "s"))
    admin.delete_topic(name)
    admin.delete_queue(f"{name}/q")


def test_the_namespace(admin: Admin, other: OfficialClient) -> None:
    assert_same(admin.get_namespace_properties(), other.get_namespace_properties())


def test_lists_have_all_pages(admin: Admin, other: OfficialClient, name: str) -> None:
    names = [f"{name}/{number:03}" for number in range(110)]
    for each in names:
        other.create_queue(each)
    listed = [queue.name for queue in admin.list_queues()]
    assert [each for each in listed if each.startswith(name)] == names
    assert listed == [queue.name for queue in other.list_queues()]
    assert {queue.name for queue in admin.list_queues_runtime_properties()} == set(listed)
    assert [topic.name for topic in admin.list_topics()] == [t.name for t in other.list_topics()]
    topics = [topic.name for topic in admin.list_topics_runtime_properties()]
    assert topics == [topic.name for topic in other.list_topics()]
    for each in names:
        other.delete_queue(each)


def test_refusals(admin: Admin, name: str) -> None:
    admin.create_queue(name)
    with pytest.raises(ResourceExistsError) as exists:
        admin.create_queue(name)
    assert (exists.value.status_code, exists.value.is_retryable) == (409, False)
    again = pickle.loads(pickle.dumps(exists.value))
    assert (type(again), again.status_code, str(again)) == (
        ResourceExistsError,
        409,
        str(exists.value),
    )
    with pytest.raises(ResourceNotFoundError, match=f"'{name}' is a queue and not a topic"):
        admin.get_topic(name)
    with pytest.raises(HttpResponseError, match=r"lock|Lock") as refused:
        admin.update_queue({"name": name}, lock_duration=timedelta(hours=1))
    assert refused.value.status_code == 400
    with pytest.raises(ResourceNotFoundError):
        admin.update_queue({"name": f"{name}/none"})
    with pytest.raises(ResourceNotFoundError):
        admin.delete_queue(f"{name}/none")
    with pytest.raises(TypeError, match="colour"):
        admin.create_queue(name, colour="red")
    with pytest.raises(TypeError, match="QueueProperties or a mapping"):
        admin.update_queue(name)
    admin.create_topic(f"{name}/t")
    admin.create_subscription(f"{name}/t", "s")
    with pytest.raises(HttpResponseError):
        admin.create_rule(f"{name}/t", "s", "r", filter=SqlRuleFilter("not ( a"))
    admin.delete_topic(f"{name}/t")
    admin.delete_queue(name)
    assert issubclass(administration.AzureError, ServiceBusError)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_who_cannot_be_asked(flavour: str, broker: BrokerProcess, loop: LoopThread) -> None:
    wrong = sas.connection_string(broker.http_port, key="wrong")
    with pytest.raises(ClientAuthenticationError):
        opened(flavour, loop, wrong).list_queues()
    nobody = opened(flavour, loop, sas.connection_string(free_port()), retry_total=1)
    with pytest.raises(ServiceRequestError, match="cannot reach a broker at localhost"):
        nobody.get_queue("q")
    with pytest.raises(ServiceRequestError):
        nobody.create_queue("q")
    unauthorized = opened(flavour, loop, sas.connection_string(broker.http_port))
    with pytest.raises((ServiceResponseError, HttpResponseError)):
        unauthorized.get_queue("$metrics-of-nobody/x")
    with pytest.raises(ValueError, match="Endpoint"):
        opened(flavour, loop, "SharedAccessKeyName=a;SharedAccessKey=b")


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_credentials_and_tls(flavour: str, broker: BrokerProcess, loop: LoopThread) -> None:
    host = f"localhost:{broker.http_port}"
    key = AzureNamedKeyCredential(ROOT_RULE, ROOT_KEY)
    signature = AzureSasCredential(sas.token("http://localhost/"))
    made: type[Any]
    made = BlockingAdministrationClient if flavour == "sync" else ServiceBusAdministrationClient
    for client in (
        made(host, key, is_plain=True),
        made(host, signature, is_plain=True),
        made(host, key, ca_file=str(broker.authority)),
        made(host, key, connection_verify=str(broker.authority)),
    ):
        admin = Admin(client, None if flavour == "sync" else loop)
        assert admin.get_namespace_properties().name
        admin.close()


def test_a_kept_connection_that_was_closed_is_no_failure(own_broker: BrokerProcess) -> None:
    text = sas.connection_string(own_broker.http_port)
    with BlockingAdministrationClient.from_connection_string(text, retry_total=0) as admin:
        before = admin.get_namespace_properties().name
        own_broker.stop()
        own_broker.start()
        assert admin.get_namespace_properties().name == before
