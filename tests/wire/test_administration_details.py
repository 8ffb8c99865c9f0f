"""Administration to the letter: what comes back as it was given, and what is said to whom."""

import itertools
import json
import os
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from xml.etree.ElementTree import fromstring

import pytest
from azure.core.exceptions import (
    ClientAuthenticationError,
    HttpResponseError,
    ResourceNotFoundError,
)
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError
from azure.servicebus.management import (
    AccessRights,
    AuthorizationRule,
    CorrelationRuleFilter,
    SqlRuleFilter,
)

from tests.wire import sas
from tests.wire.administration import Administration, open_clerk
from tests.wire.broker_process import BrokerProcess, broker_python
from tests.wire.clients import FLAVOURS, Bus, LoopThread, bodies, body, receive, receive_one
from tests.wire.entities import PARTITIONED, QUEUE_RULES, Queues
from tests.wire.javascript import JAVASCRIPT, node
from tests.wire.rest import RestClient
from tests.wire.tcp_proxy import TcpProxy

pytestmark = pytest.mark.filterwarnings(
    "ignore:ssl=None is deprecated:DeprecationWarning", "ignore:unclosed"
)
NUMBERS = itertools.count(1)
ATOM = {"Content-Type": "application/atom+xml"}
SCHEMA = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"


@pytest.fixture(params=FLAVOURS)
def clerk(
    request: pytest.FixtureRequest, broker: BrokerProcess, loop: LoopThread
) -> Iterator[Administration]:
    made = open_clerk(request.param, broker, loop)
    yield made
    made.close()


@pytest.fixture
def rest(broker: BrokerProcess) -> Iterator[RestClient]:
    client = RestClient(broker.http_port)
    yield client
    client.close()


@pytest.fixture
def name() -> str:
    return f"det.{next(NUMBERS)}"


# --- what comes back as it was given


def test_an_entity_with_sessions_forwards(clerk: Administration, bus: Bus, name: str) -> None:
    """Each session in its order; and the destination is shown as it was given."""
    clerk.create_queue(f"{name}.end", enable_partitioning=PARTITIONED)
    for given in (f"{name}.end", f"sb://localhost/{name}.end", f"https://other/{name}.end"):
        clerk.create_queue(
            name,
            requires_session=True,
            forward_to=given,
            forward_dead_lettered_messages_to=given,
            enable_partitioning=PARTITIONED,
        )
        shown = clerk.get_queue(name)
        # The client itself makes an address of a name.
        assert shown.forward_to == shown.forward_dead_lettered_messages_to
        assert shown.forward_to.endswith(f"/{name}.end")
        if "://" in given:
            assert shown.forward_to == given
        clerk.update_queue(shown, max_delivery_count=3)
        assert clerk.get_queue(name).forward_to == shown.forward_to
        sent = [ServiceBusMessage(f"{s}{turn}", session_id=s) for turn in range(4) for s in "abc"]
        for message in sent:
            bus.send(name, message)
        with bus.receiver(f"{name}.end") as receiver:
            got = receive(receiver, 12)
            for each in got:
                receiver.complete_message(each)
        for session in "abc":
            mine = [each for each in got if each.session_id == session]
            assert bodies(mine) == [f"{session}{turn}".encode() for turn in range(4)]
        clerk.delete_queue(name)
    clerk.delete_queue(f"{name}.end")


def test_an_entity_may_forward_to_one_with_sessions(
    clerk: Administration, bus: Bus, name: str
) -> None:
    """Each session arrives in its order; what has none is a dead letter of the source."""
    clerk.create_queue(f"{name}.end", requires_session=True, enable_partitioning=PARTITIONED)
    clerk.create_topic(f"{name}.t", enable_partitioning=PARTITIONED)
    clerk.create_subscription(f"{name}.t", "s", forward_to=f"{name}.end")
    clerk.create_queue(name, enable_partitioning=PARTITIONED)
    clerk.update_queue(clerk.get_queue(name), forward_to=f"{name}.end")
    for turn in range(3):
        for session in "ab":
            bus.send(name, ServiceBusMessage(f"q{turn}", session_id=session))
            bus.publish(f"{name}.t", ServiceBusMessage(f"t{turn}", session_id=session))
    bus.send(name, ServiceBusMessage("none"))
    for session in "ab":
        with bus.receiver(f"{name}.end", session_id=session) as receiver:
            got = bodies(receive(receiver, 6))
        for way in (b"q", b"t"):
            assert [each for each in got if each[:1] == way] == [way + b"%d" % n for n in range(3)]
    with bus.dead_letters(name) as dead_letters:
        assert receive_one(dead_letters).dead_letter_reason == "Session id is null."
    for each in (name, f"{name}.end"):
        clerk.delete_queue(each)
    clerk.delete_topic(f"{name}.t")


def test_dates_have_the_zone_that_they_were_given_with(clerk: Administration, name: str) -> None:
    clerk.create_topic(name)
    clerk.create_subscription(name, "s")
    for at in (
        datetime(2020, 7, 5, 11, 12, 13),
        datetime(2020, 7, 5, 11, 12, 13, tzinfo=UTC),
        datetime(2020, 7, 5, 11, 12, 13, tzinfo=timezone(timedelta(hours=2))),
    ):
        clerk.create_rule(name, "s", "sql", filter=SqlRuleFilter("d < @d", parameters={"@d": at}))
        clerk.create_rule(name, "s", "cor", filter=CorrelationRuleFilter(properties={"d": at}))
        found = [
            clerk.get_rule(name, "s", "sql").filter.parameters["@d"],
            clerk.get_rule(name, "s", "cor").filter.properties["d"],
        ]
        assert found == [at, at]
        assert {(each.tzinfo is None) for each in found} == {at.tzinfo is None}
        for rule in ("sql", "cor"):
            clerk.delete_rule(name, "s", rule)
    clerk.delete_topic(name)


def test_authorization_rules_have_the_times_that_they_were_sent_with(
    clerk: Administration, name: str
) -> None:
    made = datetime(2020, 1, 1, tzinfo=UTC)
    for times in ({}, {"created_at_utc": made}, {"created_at_utc": made, "modified_at_utc": made}):
        rule = AuthorizationRule(
            type="SharedAccessAuthorizationRule",
            claim_type="SharedAccessKey",
            claim_value="None",
            rights=[AccessRights.LISTEN],
            key_name="reader",
            primary_key="cHJpbWFyeQ==",
            secondary_key="c2Vjb25kYXJ5",
            **times,
        )
        clerk.create_topic(name, authorization_rules=[rule])
        (found,) = clerk.get_topic(name).authorization_rules
        assert vars(found) == vars(rule)
        clerk.update_topic(clerk.get_topic(name))
        (found,) = clerk.get_topic(name).authorization_rules
        assert vars(found) == vars(rule)
        clerk.delete_topic(name)


def test_what_nobody_has_used_and_what_is_counted(clerk: Administration, name: str) -> None:
    clerk.create_topic(name, enable_partitioning=PARTITIONED)
    clerk.create_subscription(name, "s")
    clerk.create_subscription(name, "u")
    clerk.create_rule(name, "s", "c", filter=CorrelationRuleFilter(label="l"))
    clerk.create_rule(name, "s", "q", filter=SqlRuleFilter("x = 1"))
    live = clerk.get_subscription_runtime_properties(name, "s")
    assert live.accessed_at_utc == live.created_at_utc
    topic = clerk.get_topic_runtime_properties(name)
    assert (topic.sql_filter_count, topic.correlation_filter_count) == (3, 1)
    assert topic.accessed_at_utc.year == 1
    clerk.delete_topic(name)


def test_a_size_of_messages_is_within_bounds_or_as_it_was(
    clerk: Administration, name: str, queues: Queues
) -> None:
    for kilobytes in (1, 256, 1_023, 102_401):
        for create in (clerk.create_queue, clerk.create_topic):
            with pytest.raises(HttpResponseError, match="between 1024 and 102400") as error:
                create(name, max_message_size_in_kilobytes=kilobytes)
            assert error.value.status_code == 400
    clerk.create_queue(name, max_message_size_in_kilobytes=1_024)
    clerk.update_queue(clerk.get_queue(name), max_message_size_in_kilobytes=102_400)
    clerk.delete_queue(name)
    # The configuration may choose what it likes; who changes something else sends it back.
    for kind, kilobytes in (("plain", 256), ("one-megabyte", 1_024)):
        path = queues.take(kind)
        clerk.update_queue(clerk.get_queue(path), user_metadata="read, changed, updated")
        assert clerk.get_queue(path).max_message_size_in_kilobytes == kilobytes


# --- what is missing, and who may know it


def test_the_service_document_and_what_is_missing(rest: RestClient, name: str) -> None:
    without = {"Authorization": ""}
    for path, headers in (("/", without), ("/?api-version=2021-05", without), (f"/{name}", {})):
        answer = rest.ask("GET", path, headers=headers)
        assert answer.status == 200
        assert answer.headers["Content-Type"] == "application/atom+xml;type=feed;charset=utf-8"
        title = fromstring(answer.body).findtext("{http://www.w3.org/2005/Atom}title")
        assert title == "Publicly Listed Services"
    for path in (f"/{name}/Subscriptions/s", f"/{name}/Subscriptions/s/Rules/r"):
        assert rest.ask("GET", path).status == 404


def test_who_may_not_manage_hears_the_service_s_words(
    clerk: Administration, broker: BrokerProcess, loop: LoopThread, queues: Queues, name: str
) -> None:
    """A missing queue or topic looks missing; the rest is refused."""
    path = queues.take("own-rules")
    rule = QUEUE_RULES[1]
    text = sas.connection_string(broker.http_port, rule=rule["Name"], key=rule["PrimaryKey"])
    # This client signs the whole namespace, for which the rule of a queue is not good.
    listener = open_clerk("sync", broker, loop, text)
    with pytest.raises(ClientAuthenticationError, match="InvalidSignature"):
        listener.get_queue(path)
    listener.close()
    clerk.create_topic(name, authorization_rules=[key("reader", AccessRights.LISTEN)])
    clerk.create_subscription(name, "s")
    reader = RestClient(broker.http_port)
    signed = {
        "Authorization": sas.token(f"http://localhost/{name}", rule="reader", key="cHJpbWFyeQ==")
    }
    worker = {
        "Authorization": sas.token(
            f"sb://localhost/{path}", rule=rule["Name"], key=rule["PrimaryKey"]
        )
    }
    place = f"/{name}/Subscriptions/s"
    failed = "Authorization failed for specified action: Manage,Entity"
    denied = "SubCode=40100: Unauthorized : Unauthorized access for '{}' operation on endpoint '"
    for method, target, headers, words in (
        ("GET", f"/{path}", worker, "Manage,EntityRead claims required for this operation. "),
        ("PUT", f"/{path}", worker, f"{failed}Write. "),
        ("DELETE", f"/{path}", worker, f"{failed}Delete. "),
        ("GET", f"/{name}", signed, "Manage,EntityRead claims required for this operation. "),
        ("GET", place, signed, denied.format("GetSubscription")),
        ("GET", f"/{name}/Subscriptions", signed, denied.format("EnumerateSubscriptions")),
        ("PUT", place, signed, denied.format("CreateOrUpdateSubscription")),
        ("DELETE", place, signed, denied.format("DeleteSubscription")),
        ("GET", f"{place}/Rules", signed, denied.format("EnumerateRules")),
    ):
        answer = reader.ask(method, target, queue_of(""), headers | ATOM)
        assert answer.status == 401, (method, target, answer.body)
        assert (fromstring(answer.body).findtext("Detail") or "").startswith(words)
    missing = reader.ask("GET", f"/{path}/none", headers=worker)
    assert (missing.status, b"Publicly Listed Services" in missing.body) == (200, True)
    reader.close()
    clerk.delete_topic(name)


def key(name: str, right: AccessRights) -> AuthorizationRule:
    return AuthorizationRule(
        type="SharedAccessAuthorizationRule",
        claim_type="SharedAccessKey",
        claim_value="None",
        rights=[right],
        key_name=name,
        primary_key="cHJpbWFyeQ==",
        secondary_key="c2Vjb25kYXJ5",
    )


def queue_of(inner: str) -> bytes:
    return (
        '<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml">'
        f'<QueueDescription xmlns="{SCHEMA}">{inner}</QueueDescription></content></entry>'
    ).encode()


def test_partitioning_is_refused_without_a_name(clerk: Administration, name: str) -> None:
    clerk.create_topic(name)
    with pytest.raises(HttpResponseError) as error:
        clerk.update_topic(clerk.get_topic(name), enable_partitioning=True)
    assert "SubCode=40000. Partitioning cannot be changed for Topic. . TrackingId" in str(
        error.value
    )
    with pytest.raises(ResourceNotFoundError):
        clerk.get_subscription(name, "no")
    clerk.delete_topic(name)


# --- a host without a scheme


def test_a_signature_for_a_host_means_the_namespace_and_one_for_an_entity_does_not(
    bus: Bus, broker: BrokerProcess, rest: RestClient, queues: Queues
) -> None:
    one, two = queues.take("plain"), queues.take("plain")
    for resource, opened in (
        ("localhost", (one, two)),
        ("127.0.0.1", (one, two)),
        ("sbemulatorns", (one, two)),
        (f"localhost:{broker.amqp_port}", (one, two)),
        (f"LOCALHOST/{one}", (one,)),
        (one, (one,)),
        (f"{one}/x", ()),
        ("elsewhere.example", ()),
    ):
        text = sas.connection_string(broker.amqp_port, signature=sas.token(resource))
        client = bus.client(text, retry_total=0)
        for queue in (one, two):
            signed = {"Authorization": sas.token(resource)}
            answer = rest.ask("POST", f"/{queue}/messages", b"x", signed | {"Host": one})
            assert answer.status == 421, "a listener on loopback has no such name"
            answer = rest.ask("POST", f"/{queue}/messages", b"x", signed)
            assert (answer.status == 201) == (queue in opened), (resource, queue)
            if queue in opened:
                with bus.sender(queue, client=client) as sender:
                    sender.send_messages(ServiceBusMessage("x"))
            else:
                with pytest.raises(ServiceBusError), bus.sender(queue, client=client) as sender:
                    sender.send_messages(ServiceBusMessage("x"))


def test_javascript_makes_entities_that_forward(usual_ports: BrokerProcess, name: str) -> None:
    """It signs the host alone, without a port where that is the usual one."""
    text = sas.connection_string(None, emulator=False)
    done = subprocess.run(
        [node(), "forwarding.mjs", name, json.dumps(PARTITIONED)],
        cwd=JAVASCRIPT,
        env=os.environ
        | {"PEEKLOCK_CONNECTION": text, "NODE_EXTRA_CA_CERTS": str(usual_ports.authority)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    shown = f"sb://localhost/{name}.end https://localhost/{name}.end"
    into = f"sb://localhost/{name} sb://localhost/{name}"
    assert done.stdout.splitlines() == [shown, shown, into, "3"]


# --- our own property


def test_unlock_on_disconnect_by_administration_and_command_line(
    bus: Bus, broker: BrokerProcess, rest: RestClient, name: str
) -> None:
    """R-S8: not in the file alone."""

    def shown(path: str) -> bool:
        return b"<UnlockOnDisconnect>true</UnlockOnDisconnect>" in rest.ask("GET", f"/{path}").body

    flag = "<UnlockOnDisconnect>{}</UnlockOnDisconnect>"
    assert rest.ask("PUT", f"/{name}", queue_of(flag.format("true")), ATOM).status == 201
    assert shown(name)
    answer = rest.ask("PUT", f"/{name}", queue_of(flag.format("false")), {**ATOM, "If-Match": "*"})
    assert (answer.status, shown(name)) == (200, False)

    def peeklock(*words: str) -> None:
        ours = {
            "PEEKLOCK_CONNECTION_STRING": broker.connection_string,
            "PEEKLOCK_HTTP_PORT": str(broker.http_port),
        }
        command = [broker_python(), "-m", "peeklock", *words]
        done = subprocess.run(
            command, env=os.environ | ours, check=False, capture_output=True, timeout=60
        )
        assert done.returncode == 0, done.stderr

    peeklock("queue", "update", name, "--unlock-on-disconnect")
    assert shown(name)
    peeklock("queue", "create", f"{name}.b", "--unlock-on-disconnect")
    assert shown(f"{name}.b")
    bus.send(f"{name}.b", ServiceBusMessage("x"))
    with TcpProxy(broker.amqp_port) as proxy, bus.receiver(f"{name}.b") as other:
        client = bus.client(sas.connection_string(proxy.port), retry_total=0)
        with bus.receiver(f"{name}.b", client=client) as receiver:
            receive_one(receiver)
            assert proxy.cut() == 1
            assert body(receive_one(other, within_s=5)) == b"x"
    for each in (name, f"{name}.b"):
        assert rest.ask("DELETE", f"/{each}").status == 200
