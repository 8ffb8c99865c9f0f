"""The controls over HTTP, as a test in any language uses them."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from peeklock.auth.rights import AuthorizationRule, development_rule
from peeklock.client.blocking import ServiceBusClient, ServiceBusMessage
from peeklock.client.exceptions import MessageLockLostError, ServiceBusServerBusyError
from peeklock.configuration.content import ConfigurationError
from peeklock.configuration.start import refuse_exposure
from peeklock.configuration.start import testing_problem as problem_of
from peeklock.settings import Settings
from peeklock.testing import InProcessBroker

WAIT_S = 30
ORDERS = {"Queues": [{"Name": "orders", "Properties": {"LockDuration": "PT30S"}}]}


class Caller:
    """Asks `/$testing` of a broker, and reads what it says."""

    def __init__(self, place: str) -> None:
        self._url = f"http://{place}/$testing"

    def __call__(self, method: str, path: str, body: Any = None) -> tuple[int, dict[str, Any]]:
        data = (
            body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        )
        request = urllib.request.Request(self._url + path, data, method=method)
        try:
            with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as refused:
            with refused:
                return refused.code, json.load(refused)


@pytest.fixture
def ask() -> Iterator[Caller]:
    """A broker of its own, because its clock is moved and its first namespace is used."""
    with InProcessBroker() as broker, broker.namespace() as bus:
        place = bus.connection_string.partition("sb://")[2].partition(";")[0]
        yield Caller(place)


def test_a_namespace_is_made_filled_and_dropped(ask: Caller) -> None:
    status, made = ask("POST", "/namespaces/shop", ORDERS)
    assert (status, made["name"]) == (201, "shop")
    assert ask("PUT", "/namespaces/shop", {"Topics": [{"Name": "news"}]})[0] == 200
    with ServiceBusClient.from_connection_string(made["connection_string"]) as client:
        client.get_queue_sender("orders").send_messages(ServiceBusMessage("tea"))
        client.get_topic_sender("news").send_messages(ServiceBusMessage("tea"))
    assert made in ask("GET", "")[1]["namespaces"]
    assert ask("DELETE", "/namespaces/shop")[0] == 200
    assert made not in ask("GET", "/namespaces")[1]["namespaces"]
    status, made = ask("POST", "/namespaces")
    assert (status, made["name"][:5]) == (201, "test-")


def test_the_clock_is_moved_and_a_lock_ends(ask: Caller) -> None:
    made = ask("POST", "/namespaces", ORDERS)[1]
    with ServiceBusClient.from_connection_string(made["connection_string"]) as client:
        client.get_queue_sender("orders").send_messages(ServiceBusMessage("tea"))
        receiver = client.get_queue_receiver("orders", max_wait_time=WAIT_S)
        (message,) = receiver.receive_messages()
        before = ask("GET", "/clock")[1]["now_ms"]
        after = ask("POST", "/clock", {"advance": "PT31S"})[1]
        assert after["moved_ms"] == 31_000
        assert after["now_ms"] >= before + 31_000
        with pytest.raises(MessageLockLostError):
            receiver.complete_message(message)
        (message,) = receiver.receive_messages()
        lost = {"kind": "lose-lock", "entity": "orders", "lock_token": str(message.lock_token)}
        assert ask("POST", "/faults", {**lost, "namespace": made["name"]})[0] == 200
        with pytest.raises(MessageLockLostError):
            receiver.complete_message(message)
    assert ask("POST", "/clock", {"advance": 1.5, "tokens": True})[1]["moved_ms"] == 32_500


def test_a_fault_waits_strikes_and_is_removed(ask: Caller) -> None:
    made = ask("POST", "/namespaces", ORDERS)[1]
    wanted = {"kind": "server-busy", "entity": "orders", "namespace": made["name"]}
    status, fault = ask("POST", "/faults", {**wanted, "count": 2})
    assert (status, fault["operation"], fault["struck"]) == (201, "send", 0)
    with ServiceBusClient.from_connection_string(
        made["connection_string"], retry_total=0
    ) as client:
        sender = client.get_queue_sender("orders")
        with pytest.raises(ServiceBusServerBusyError):
            sender.send_messages(ServiceBusMessage("tea"))
        assert ask("GET", "/faults")[1]["faults"] == [{**fault, "struck": 1}]
        assert ask("DELETE", f"/faults/{fault['number']}")[1] == {"removed": [fault["number"]]}
        sender.send_messages(ServiceBusMessage("tea"))
        assert ask("POST", "/faults", {"kind": "stall-store"})[1]["namespace"] == "sbemulatorns"
        assert ask("POST", "/faults", {"kind": "delay-answer", "delay": "PT1S"})[0] == 201
        assert len(ask("DELETE", "/faults")[1]["removed"]) == 2
        now = {**wanted, "kind": "cut-connection", "operation": "now"}
        assert ask("POST", "/faults", now)[1]["struck"] > 0
    assert ask("GET", "/faults")[1]["faults"] == []


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "text"),
    [
        ("GET", "/weather", None, 404, "nothing at"),
        ("PATCH", "/clock", None, 405, "not allowed"),
        ("POST", "/clock", b"{", 400, "not JSON"),
        ("POST", "/clock", [], 400, "JSON object"),
        ("POST", "/clock", {}, 400, "advance must be seconds"),
        ("POST", "/clock", {"advance": True}, 400, "advance must be seconds"),
        ("POST", "/clock", {"advance": -1}, 400, "advance must be seconds"),
        ("POST", "/clock", {"advance": "soon"}, 400, "'soon'"),
        ("POST", "/clock", {"advance": 1, "tokens": 1}, 400, "true or false"),
        ("POST", "/clock", {"advance": 1, "connections": "yes"}, 400, "true or false"),
        ("POST", "/clock", {"forward": 1}, 400, "'forward' means nothing"),
        ("POST", "/namespaces/a%20b", None, 400, "not a name"),
        ("POST", "/namespaces/sbemulatorns", None, 400, "already"),
        ("POST", "/namespaces", {"Queues": [{}]}, 400, "Queues"),
        ("PUT", "/namespaces", None, 400, "needs the name"),
        ("DELETE", "/namespaces", None, 400, "needs the name"),
        ("DELETE", "/namespaces/sbemulatorns", None, 400, "was made here"),
        ("POST", "/faults", {}, 400, "needs its kind"),
        ("POST", "/faults", {"kind": 1}, 400, "kind cannot be 1"),
        ("POST", "/faults", {"kind": "server-busy", "count": True}, 400, "cannot be true"),
        ("POST", "/faults", {"kind": "server-busy", "when": 1}, 400, "no 'when'"),
        ("POST", "/faults", {"kind": "explode"}, 400, "no fault"),
        ("POST", "/faults", {"kind": "detach", "namespace": "x"}, 400, "'x' was made"),
        ("POST", "/faults", {"kind": "detach", "lock_token": "x"}, 400, "takes kind"),
        ("DELETE", "/faults/x", None, 400, "no number"),
    ],
)
def test_what_is_wrong_is_told(
    servicebus_broker: InProcessBroker,
    method: str,
    path: str,
    body: Any,
    status: int,
    text: str,
) -> None:
    with servicebus_broker.namespace() as bus:
        place = bus.connection_string.partition("sb://")[2].partition(";")[0]
        found, answer = Caller(place)(method, path, body)
    assert found == status
    assert text in answer["error"]


def test_only_loopback_or_a_listener_with_nothing_to_lose_is_under_test() -> None:
    """Nobody's production is: others could move its clock."""
    own = [development_rule(), AuthorizationRule("own", "secret")]
    everywhere = Settings(host="0.0.0.0", is_testing=True)
    allowed = Settings(host="0.0.0.0", is_testing=True, allow_development_key=True)
    assert problem_of(Settings(is_testing=True), own) is None
    assert problem_of(Settings(host="0.0.0.0"), own) is None
    assert problem_of(allowed, [development_rule()]) is None
    for settings, rules in ((everywhere, []), (allowed, own)):
        said = problem_of(settings, rules)
        assert said is not None
        assert "--testing would let everybody" in said
    with pytest.raises(ConfigurationError, match="--testing would let everybody"):
        refuse_exposure(allowed, own)
