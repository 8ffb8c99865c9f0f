"""Several namespaces in one broker: the official client, HTTP and the command line in each."""

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, TransportType
from azure.servicebus.exceptions import ServiceBusAuthenticationError, ServiceBusError

from tests.wire import sas
from tests.wire.broker_process import BrokerProcess, broker_python
from tests.wire.clients import assert_nothing_comes, body, receive_one
from tests.wire.rest import RestClient

NAMES = ("ns1", "ns2")
SHARED: Any = {"rule": "shared", "key": "same-key"}


def key_of(name: str) -> Any:
    return {"rule": "root", "key": f"key-{name}"}


def namespace(name: str) -> dict[str, Any]:
    rules = [key_of(name), SHARED]
    return {
        "Name": name,
        "AuthorizationRules": [
            {"Name": rule["rule"], "PrimaryKey": rule["key"], "Rights": ["Manage"]}
            for rule in rules
        ],
        "Queues": [{"Name": queue} for queue in ("q", "h", "r", "w", "c", f"only-{name}")],
    }


def broker_of(directory: Path, *names: str, options: tuple[str, ...] = ()) -> BrokerProcess:
    config = directory / "Config.json"
    write(config, *names)
    return BrokerProcess(
        data=directory / "data", config=config, log=directory / "broker.log", options=options
    )


def write(config: Path, *names: str) -> None:
    document = {"UserConfig": {"Namespaces": [namespace(name) for name in names]}}
    config.write_text(json.dumps(document))


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    process = broker_of(tmp_path_factory.mktemp("namespaces"), *NAMES)
    process.start()
    yield process
    assert process.stop() == 0


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., BrokerProcess]]:
    made: list[BrokerProcess] = []

    def begin(*names: str, **options: Any) -> BrokerProcess:
        process = broker_of(tmp_path, *names, **options)
        made.append(process)
        process.start()
        return process

    yield begin
    for process in made:
        if process.is_running:
            process.kill()


def by_key(broker: BrokerProcess, rule: str, key: str) -> ServiceBusClient:
    """A client that says `localhost`; it gives up at once, so that refusals are quick."""
    text = sas.connection_string(broker.amqp_port, rule=rule, key=key)
    return ServiceBusClient.from_connection_string(text, retry_total=0)


def by_host(broker: BrokerProcess, name: str, rule: str, key: str, **more: Any) -> ServiceBusClient:
    """A client that says `name.localhost`, wherever that name resolves to."""
    text = sas.connection_string(None, rule=rule, key=key)
    more = {"transport_type": TransportType.Amqp} | more
    return ServiceBusClient.from_connection_string(
        text.replace("localhost", f"{name}.localhost"),
        custom_endpoint_address=f"http://localhost:{broker.amqp_port}",
        retry_total=0,
        **more,
    )


def send(client: ServiceBusClient, queue: str, text: str) -> None:
    with client.get_queue_sender(queue) as sender:
        sender.send_messages(ServiceBusMessage(text))


def take(client: ServiceBusClient, queue: str) -> bytes:
    """Take the only message of a queue."""
    with client.get_queue_receiver(queue) as receiver:
        message = receive_one(receiver)
        receiver.complete_message(message)
        assert_nothing_comes(receiver)
        return body(message)


@pytest.mark.smoke
def test_the_key_says_which_namespace_is_meant(broker: BrokerProcess) -> None:
    """R-F7: queues of the same name do not see each other's messages."""
    clients = {name: by_key(broker, **key_of(name)) for name in NAMES}
    for name, client in clients.items():
        send(client, "q", f"for {name}")
    for name, client in clients.items():
        assert take(client, "q") == f"for {name}".encode()


@pytest.mark.smoke
def test_the_host_says_which_namespace_is_meant(broker: BrokerProcess) -> None:
    """R-F7: even where one key is good in both."""
    clients = {name: by_host(broker, name, **SHARED) for name in NAMES}
    for name, client in clients.items():
        send(client, "h", f"for {name}")
    for name, client in clients.items():
        assert take(client, "h") == f"for {name}".encode()
    # Who does not say means the first.
    send(by_key(broker, **SHARED), "h", "for the first")
    assert take(clients["ns1"], "h") == b"for the first"


def test_the_host_says_it_over_websockets(broker: BrokerProcess) -> None:
    """R-F7, R-F1: this client appends a path to the host there."""
    way = TransportType.AmqpOverWebsocket
    send(by_host(broker, "ns2", **SHARED, transport_type=way), "w", "through a tunnel")
    assert take(by_key(broker, **key_of("ns2")), "w") == b"through a tunnel"


def test_the_key_of_one_namespace_does_not_open_another(broker: BrokerProcess) -> None:
    """R-F7, R-T2."""
    seen = broker.log_size()
    # The client has another error for everything where it is told an address of its own.
    with pytest.raises(ServiceBusError):
        send(by_host(broker, "ns2", **key_of("ns1")), "q", "x")
    assert "operation=put-token" in broker.log_since(seen)
    assert "status=401 namespace=ns2" in broker.log_since(seen)
    with pytest.raises(ServiceBusAuthenticationError) as caught:
        send(by_key(broker, **key_of("ns1")), "only-ns2", "x")
    text = str(caught.value.inner_exception)
    assert "could not be found" in text
    assert "SystemTracker:ns1" in text


def test_http_chooses_in_the_same_way(broker: BrokerProcess) -> None:
    """R-F7."""
    port = broker.http_port
    clients = {name: RestClient(port, **key_of(name)) for name in NAMES}
    for name, client in clients.items():
        client.send("r", f"for {name}".encode())
    shared = RestClient(port, **SHARED)
    for name in reversed(NAMES):
        host = {"Host": f"{name}.localhost:{port}"}
        found = shared.ask("DELETE", "/r/messages/head?timeout=5", headers=host)
        assert (found.status, found.body) == (200, f"for {name}".encode())
        assert shared.ask("GET", f"/only-{name}", headers=host).status == 200
        listed = shared.ask("GET", "/$Resources/queues", headers=host).body.decode()
        assert [other for other in NAMES if f"only-{other}" in listed] == [name]
        told = shared.ask("GET", "/$namespaceinfo", headers=host).body.decode()
        assert f"<Name>{name}</Name>" in told
    wrong = clients["ns1"].ask("GET", "/only-ns2", headers={"Host": "ns2.localhost"})
    assert wrong.status == 401
    assert "SystemTracker:ns2" in wrong.body.decode()


def test_who_manages_another_namespace_does_not_switch_stores(broker: BrokerProcess) -> None:
    first, second = (RestClient(broker.http_port, **key_of(name)) for name in NAMES)
    assert first.ask("GET", "/$stores").status == 200
    assert second.ask("GET", "/$stores").status == 401


def test_commands_go_where_their_connection_string_says(broker: BrokerProcess) -> None:
    """R-F7: a name before `localhost` is this machine, whether or not the system knows it."""

    def run(name: str, *arguments: str) -> str:
        text = sas.connection_string(broker.amqp_port, **SHARED)
        ours = {
            "PEEKLOCK_CONNECTION_STRING": text.replace("localhost", f"{name}.localhost"),
            "PEEKLOCK_HTTP_PORT": str(broker.http_port),
        }
        done = subprocess.run(
            [broker_python(), "-m", "peeklock", *arguments],
            env={**os.environ, **ours},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    listed = json.loads(run("ns2", "queue", "list", "--output", "json"))
    assert "only-ns2" in json.dumps(listed)
    assert "only-ns1" not in json.dumps(listed)
    run("ns2", "send", "c", "--body", "hello")
    assert take(by_key(broker, **key_of("ns2")), "c") == b"hello"
    exported = json.loads(run("ns2", "export"))
    assert exported["UserConfig"]["Namespaces"][0]["Name"] == "ns2"


def test_one_connection_too_many_is_told_so(start: Callable[..., BrokerProcess]) -> None:
    """R-F7: for each namespace by itself, and the room of one that left is free again."""
    broker = start(*NAMES, options=("--connections-max", "2"))
    first, second = (by_key(broker, **key_of(name)) for name in NAMES)
    held = [first.get_queue_sender("q") for _ in range(2)]
    for sender in held:
        sender.send_messages(ServiceBusMessage("in"))
    with pytest.raises(ServiceBusError) as caught:
        send(first, "q", "one too many")
    told = f"{caught.value!s} {caught.value.inner_exception!s}"
    assert "The namespace 'ns1' has 2 connections, as many as it may have." in told
    assert "SystemTracker:ns1" in told
    send(second, "q", "there is room here")
    # HTTP is not counted, as in the service.
    RestClient(broker.http_port, **key_of("ns1")).send("q", b"by HTTP")
    held[0].close()
    deadline = time.monotonic() + 20
    while True:
        try:
            send(first, "q", "room again")
            break
        except ServiceBusError:
            assert time.monotonic() < deadline, "the room of a connection that left stays taken"
            time.sleep(0.2)
    held[1].close()


def test_a_namespace_that_leaves_the_file_is_kept(start: Callable[..., BrokerProcess]) -> None:
    """R-F7: nobody has its keys then, and its messages wait until it comes back."""
    broker = start(*NAMES)
    send(by_key(broker, **key_of("ns2")), "q", "kept")
    assert broker.stop() == 0
    write(broker.config, "ns1")
    seen = broker.log_size()
    broker.start()
    assert "namespace-kept namespace=ns2 entities=6" in broker.log_since(seen)
    for client in (by_key(broker, **key_of("ns2")), by_host(broker, "ns2", **SHARED)):
        with pytest.raises(ServiceBusError):
            send(client, "q", "x")
    assert broker.stop() == 0
    write(broker.config, *NAMES)
    broker.start()
    assert take(by_host(broker, "ns2", **SHARED), "q") == b"kept"
