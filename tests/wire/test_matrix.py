"""A small authorization matrix through real sockets: every transport, a few credentials.

The whole of it runs without sockets in tests/gateway/matrix; this one shows that each transport
of the broker that people start is guarded by the same.
"""

import http.client
import ssl
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage, TransportType
from azure.servicebus.exceptions import (
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusError,
)

from tests.wire import sas
from tests.wire.broker_process import BrokerProcess
from tests.wire.clients import Bus, LoopThread
from tests.wire.entities import QUEUE_RULES, Queues

# The client gives aiohttp an option that aiohttp no longer likes.
pytestmark = pytest.mark.filterwarnings("ignore:ssl=None is deprecated:DeprecationWarning")

SENDING: dict[str, Any] = {"rule": "send-only", "key": QUEUE_RULES[0]["PrimaryKey"]}
LISTENING: dict[str, Any] = {"rule": "listen-only", "key": QUEUE_RULES[1]["PrimaryKey"]}
ATOM = {"Content-Type": "application/atom+xml"}
ENTRY = (
    '<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml"><QueueDescription '
    'xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"/></content></entry>'
)
NO_LOCK = "messages/1/00000000-0000-0000-0000-000000000001"

# What each operation answers to: everybody's root, who sends, who listens.
OPERATIONS: list[tuple[str, str, int, int, int]] = [
    ("POST", "/{queue}/messages", 201, 201, 403),
    ("POST", "/{queue}/messages/head?timeout=5", 201, 403, 201),
    ("DELETE", "/{queue}/messages/head?timeout=5", 200, 403, 200),
    ("DELETE", f"/{{queue}}/{NO_LOCK}", 404, 403, 404),
    ("PUT", f"/{{queue}}/{NO_LOCK}", 404, 403, 404),
    ("GET", "/{queue}", 200, 401, 401),
    ("PUT", "/{queue}", 409, 401, 401),
    ("DELETE", "/{queue}-other", 404, 401, 401),
    ("GET", "/$Resources/queues", 200, 401, 401),
    ("GET", "/$namespaceinfo", 200, 401, 401),
    ("GET", "/$stores", 200, 401, 401),
    ("POST", "/$stores/none/offline", 404, 401, 401),
]


@pytest.mark.smoke
@pytest.mark.parametrize("is_secure", [False, True], ids=["http", "https"])
@pytest.mark.parametrize("port", ["amqp_port", "http_port"])
def test_every_operation_by_http(
    broker: BrokerProcess, queues: Queues, port: str, is_secure: bool
) -> None:
    """Allowed or refused as it should be, on one connection, which goes on after each refusal."""
    queue = queues.take("own-rules")
    number: int = getattr(broker, port)
    connection: http.client.HTTPConnection
    if is_secure:
        context = ssl.create_default_context(cafile=str(broker.authority))
        connection = http.client.HTTPSConnection("localhost", number, context=context, timeout=60)
    else:
        connection = http.client.HTTPConnection("localhost", number, timeout=60)

    def ask(method: str, target: str, token: str | None) -> int:
        headers = {} if token is None else {"Authorization": token}
        is_description = method == "PUT" and NO_LOCK not in target
        body = ENTRY if is_description else ""
        connection.request(method, target, body, headers | (ATOM if is_description else {}))
        response = connection.getresponse()
        text = response.read().decode()
        if response.status in (401, 403):
            assert "TrackingId:" in text
        return response.status

    host = f"https://localhost:{number}"
    root = sas.token(f"{host}/")
    for method, path, as_root, as_sender, as_listener in OPERATIONS:
        target = path.replace("{queue}", queue)
        assert ask("POST", f"/{queue}/messages", root) == 201
        assert ask(method, target, root) == as_root, target
        assert ask("POST", f"/{queue}/messages", root) == 201
        sender = sas.token(f"{host}/{queue}", **SENDING)
        assert ask(method, target, sender) == as_sender, target
        listener = sas.token(f"{host}/{queue}", **LISTENING)
        assert ask(method, target, listener) == as_listener, target
        for token in (
            None,
            "rubbish",
            root[: len(root) // 2],
            sas.token(f"{host}/", key="not the key"),
            sas.token(f"{host}/", lifetime_s=-60),
            sas.token(f"{host}/another"),
            sas.token(f"{host}/", **SENDING),
        ):
            assert ask(method, target, token) == 401, (target, token)
    assert ask("DELETE", f"/{queue}", root) == 200
    connection.close()


# Plain AMQP has its own tests in test_authorization.
TRANSPORTS = ("amqps", "ws", "wss")


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_every_door_of_amqp(
    broker: BrokerProcess, loop: LoopThread, queues: Queues, transport: str
) -> None:
    """The same keys open the same things, whatever is around AMQP."""
    queue = queues.take("own-rules")
    port = broker.http_port if "ws" in transport else broker.amqp_port
    text = sas.connection_string(port, emulator=transport == "ws")
    bus = Bus("async", text, loop, **_options(transport, port, broker))

    def send(**signer: Any) -> None:
        with bus.sender(queue, client=_client(bus, transport, port, signer)) as sender:
            sender.send_messages(ServiceBusMessage("x"))

    def peek(**signer: Any) -> int:
        with bus.receiver(queue, client=_client(bus, transport, port, signer)) as receiver:
            return len(receiver.peek_messages(max_message_count=10))

    send()
    send(**SENDING)
    assert peek() == peek(**LISTENING) == 2
    with pytest.raises(ServiceBusAuthorizationError):
        send(**LISTENING)
    with pytest.raises(ServiceBusAuthorizationError):
        peek(**SENDING)
    for wrong in ({"key": "not the key"}, {"rule": "nobody"}):
        with pytest.raises((ServiceBusAuthenticationError, ServiceBusError)):
            send(**wrong)
    assert peek() == 2
    bus.close()


def _client(bus: Bus, transport: str, port: int, signer: dict[str, Any]) -> Any:
    text = sas.connection_string(port, emulator=transport == "ws", **signer)
    return bus.client(text, retry_total=0)


def _options(transport: str, port: int, broker: BrokerProcess) -> dict[str, Any]:
    scheme = "http" if transport == "ws" else "https"
    options: dict[str, Any] = {"custom_endpoint_address": f"{scheme}://localhost:{port}"}
    if "ws" in transport:
        options["transport_type"] = TransportType.AmqpOverWebsocket
    if scheme == "https":
        options["connection_verify"] = str(broker.authority)
    return options
