"""Tokens of Entra ID, by an issuer of this machine: on `$cbs` and as Bearer by HTTP."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from azure.core.credentials import AccessToken
from azure.core.exceptions import ClientAuthenticationError
from azure.identity import DefaultAzureCredential
from azure.identity.aio import DefaultAzureCredential as AsyncDefaultAzureCredential
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError
from azure.servicebus.management import ServiceBusAdministrationClient

from tests.gateway.issuer import LocalIssuer
from tests.wire import sas
from tests.wire.broker_process import BrokerProcess
from tests.wire.clients import FLAVOURS, Bus, Flavour, LoopThread, body, receive_one
from tests.wire.entities import PARTITIONED, ROOT_KEY, ROOT_RULE
from tests.wire.java import java_client, trusting
from tests.wire.javascript import JAVASCRIPT, node
from tests.wire.rest import RestClient
from tests.wire.test_go import Tour as GoTour
from tests.wire.test_java import run as run_java

pytestmark = pytest.mark.filterwarnings("ignore:unclosed")
RESOURCE = "https://servicebus.azure.net"


class IssuerServer(LocalIssuer):
    """An issuer that publishes its keys, and hands out tokens as a machine's identity does."""

    def __init__(self) -> None:
        super().__init__()
        self.rights: tuple[str, ...] = ("Manage",)
        self.lifetime_s = 3600.0
        self.asked: list[str] = []
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.asked.append(self.path)
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.end_headers()
                self.wfile.write(issuer.answer(self.path))

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def answer(self, path: str) -> bytes:
        if path == "/keys":
            return self.published()
        (resource,) = parse_qs(urlsplit(path).query)["resource"]
        assert resource.rstrip("/") == RESOURCE
        until = time.time() + self.lifetime_s
        text = self.now(*self.rights, aud=resource)
        said = {"access_token": text, "expires_on": str(int(until)), "token_type": "Bearer"}
        return json.dumps({**said, "resource": resource}).encode()

    def now(self, *rights: str, **claims: Any) -> str:
        until = int(time.time() + self.lifetime_s)
        return self.token(int(time.time() * 1000), *rights, **{"exp": until, **claims})

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class Tokens:
    """A TokenCredential: it gives what the issuer signs."""

    def __init__(self, issuer: IssuerServer, *rights: str) -> None:
        self._issuer = issuer
        self._rights = rights
        self.count = 0

    def get_token(self, *scopes: str, **_: object) -> AccessToken:
        assert [scope.split("//.default")[0].removesuffix("/.default") for scope in scopes] == [
            RESOURCE
        ]
        self.count += 1
        until = int(time.time() + self._issuer.lifetime_s)
        return AccessToken(self._issuer.now(*self._rights), until)


class AsyncTokens:
    """The same for those who await."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens

    async def get_token(self, *scopes: str, **options: object) -> AccessToken:
        return self._tokens.get_token(*scopes, **options)


@pytest.fixture(scope="module")
def issuer() -> Iterator[IssuerServer]:
    server = IssuerServer()
    yield server
    server.close()


@pytest.fixture
def believer(
    start_broker: Callable[..., BrokerProcess], issuer: IssuerServer
) -> Iterator[BrokerProcess]:
    """A broker that believes the issuer."""
    issuer.lifetime_s = 3600.0
    process = start_broker()
    write(process, issuer)
    process.start()
    yield process
    assert process.stop() == 0


def write(process: BrokerProcess, issuer: IssuerServer, **facts: Any) -> None:
    kept = {"EnablePartitioning": True} if PARTITIONED else {}
    believed = {"Issuer": issuer.issuer, "KeysUrl": f"{issuer.url}/keys", "ClockSkew": "PT0S"}
    believed["KeysRefresh"] = "PT10S"
    space = {
        "Name": "sbemulatorns",
        "AuthorizationRules": [
            {"Name": ROOT_RULE, "PrimaryKey": ROOT_KEY, "Rights": ["Manage"]},
        ],
        "TokenIssuers": [believed | facts],
        "Queues": [{"Name": name, "Properties": kept} for name in ("orders", "invoices")],
    }
    process.config.write_text(json.dumps({"UserConfig": {"Namespaces": [space]}}))


@pytest.fixture(params=FLAVOURS)
def mine(
    request: pytest.FixtureRequest, believer: BrokerProcess, loop: LoopThread
) -> Iterator[Bus]:
    flavour: Flavour = request.param
    made = Bus(flavour, believer.connection_string, loop)
    yield made
    made.close()


def credential(bus: Bus, issuer: IssuerServer, *rights: str) -> Any:
    tokens = Tokens(issuer, *rights)
    return tokens if bus.flavour == "sync" else AsyncTokens(tokens)


def test_roles_say_what_a_token_opens(mine: Bus, issuer: IssuerServer) -> None:
    both = mine.client_with(mine.host, credential(mine, issuer, "Send", "Listen"), retry_total=0)
    with mine.sender("orders", client=both) as sender:
        sender.send_messages(ServiceBusMessage("x"))
    with mine.receiver("orders", client=both) as receiver:
        message = receive_one(receiver)
        assert body(message) == b"x"
        receiver.complete_message(message)
    listener = mine.client_with(mine.host, credential(mine, issuer, "Listen"), retry_total=0)
    with pytest.raises(ServiceBusError), mine.sender("orders", client=listener) as sender:
        sender.send_messages(ServiceBusMessage("x"))
    nobody = mine.client_with(mine.host, credential(mine, issuer), retry_total=0)
    with pytest.raises(ServiceBusError), mine.receiver("orders", client=nobody) as receiver:
        receiver.receive_messages(1, max_wait_time=5)


def test_the_default_credential_finds_the_local_issuer(
    mine: Bus, believer: BrokerProcess, issuer: IssuerServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a service with an identity of its own: two variables say where tokens are."""
    monkeypatch.setenv("IDENTITY_ENDPOINT", f"{issuer.url}/token")
    monkeypatch.setenv("IDENTITY_HEADER", "secret")
    kind: Any = DefaultAzureCredential if mine.flavour == "sync" else AsyncDefaultAzureCredential
    made = kind() if mine.flavour == "sync" else mine.loop.call(kind)
    client = mine.client_with(mine.host, made, retry_total=0)
    with mine.sender("orders", client=client) as sender:
        sender.send_messages(ServiceBusMessage("by identity"))
    if mine.flavour == "sync":
        with ServiceBusAdministrationClient(
            f"localhost:{believer.http_port}", made, connection_verify=str(believer.authority)
        ) as clerk:
            clerk.create_queue("made", forward_to="orders")
            assert clerk.get_queue("made").name == "made"
            clerk.delete_queue("made")


def test_bearer_by_http(believer: BrokerProcess, issuer: IssuerServer) -> None:
    rest = RestClient(believer.http_port)

    def ask(method: str, path: str, *rights: str, **claims: Any) -> int:
        token = {"Authorization": f"Bearer {issuer.now(*rights, **claims)}"}
        return rest.ask(method, path, b"", token).status

    assert ask("POST", "/orders/messages", "Send") == 201
    assert ask("POST", "/orders/messages", "Listen") == 403
    assert ask("DELETE", "/orders/messages/head?timeout=5", "Listen") == 200
    assert ask("GET", "/$Resources/queues", "Manage") == 200
    assert ask("GET", "/$Resources/queues", "Send", "Listen") == 401
    for claims in (
        {"exp": int(time.time()) - 1},
        {"aud": "https://storage.azure.com"},
        {"iss": "https://nobody/"},
        {"nbf": int(time.time()) + 60},
    ):
        assert ask("POST", "/orders/messages", "Manage", **claims) == 401
    rest.close()
    clerk = ServiceBusAdministrationClient(
        f"localhost:{believer.http_port}",
        Tokens(issuer, "Listen"),
        connection_verify=str(believer.authority),
    )
    with clerk, pytest.raises(ClientAuthenticationError, match="Manage,EntityRead claims"):
        clerk.get_queue("orders")


def test_javascript_sends_and_manages_with_a_token(
    believer: BrokerProcess, issuer: IssuerServer
) -> None:
    host = f"localhost:{believer.http_port}"
    done = subprocess.run(
        [node(), "web_token.mjs", host, issuer.now("Manage")],
        cwd=JAVASCRIPT,
        env=os.environ | {"NODE_EXTRA_CA_CERTS": str(believer.authority)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"sb://{host}/js.web", "by token"]


def test_go_sends_and_manages_with_a_token(believer: BrokerProcess, issuer: IssuerServer) -> None:
    tour = GoTour(believer)
    for scenario, entities, last in (
        ("scheduling", ["orders"], "came soon true true"),
        ("administration", ["go-made", "go-topic"], "gone true"),
    ):
        seen = tour.with_token(issuer.now("Manage"), scenario, *entities)
        assert seen[-1] == last
    with pytest.raises(AssertionError, match="unauthorized"):
        tour.with_token(issuer.now("Listen"), "scheduling", "orders")


# The first run fetches the client.
@pytest.mark.timeout(300)
def test_java_sends_and_manages_with_a_token(
    believer: BrokerProcess, issuer: IssuerServer, tmp_path: Path
) -> None:
    command = trusting(java_client("Tour.java"), believer.authority, tmp_path)
    host = f"localhost:{believer.http_port}"
    scenarios = [*command, host, "scheduling,administration", "orders", "java-made"]
    seen = run_java(scenarios, PEEKLOCK_TOKEN=issuer.now("Manage"))
    assert "scheduling came soon SCHEDULED" in seen
    assert seen[-1] == "administration date 2024-02-29T12:00Z"


TIMED = pytest.mark.plain_only(reason="tokens know nothing of partitions, and take their time")


@TIMED
def test_a_link_does_not_outlive_its_token(mine: Bus, issuer: IssuerServer) -> None:
    """R-T2: as with shared access signatures."""
    issuer.lifetime_s = 4
    fixed = issuer.now("Send")
    client = mine.client(sas.connection_string(mine.port, signature=fixed), retry_total=0)
    with mine.sender("invoices", client=client) as sender:
        sender.send_messages(ServiceBusMessage("in time"))
        time.sleep(5)
        with pytest.raises(ServiceBusError):
            sender.send_messages(ServiceBusMessage("too late"))
    with mine.receiver("invoices") as receiver:
        assert len(receiver.peek_messages(max_message_count=5)) == 1


@TIMED
def test_a_token_is_renewed_on_a_living_link(
    believer: BrokerProcess, loop: LoopThread, issuer: IssuerServer
) -> None:
    issuer.lifetime_s = 10
    bus = Bus("sync", believer.connection_string, loop)
    renewing = Tokens(issuer, "Listen")
    client = bus.client_with(bus.host, renewing, retry_total=0)
    with bus.receiver("orders", client=client) as receiver:
        assert receiver.receive_messages(max_message_count=1, max_wait_time=12) == []
        bus.send("orders", ServiceBusMessage("x"))
        receiver.complete_message(receive_one(receiver))
    assert renewing.count >= 2
    bus.close()


@TIMED
def test_a_link_does_not_outlive_the_key_of_its_token(
    believer: BrokerProcess, loop: LoopThread, issuer: IssuerServer
) -> None:
    """The issuer withdraws it, and nobody reloads anything."""
    bus = Bus("sync", believer.connection_string, loop)
    fixed = issuer.now("Send")
    client = bus.client(sas.connection_string(bus.port, signature=fixed), retry_total=0)
    with bus.sender("invoices", client=client) as sender:
        sender.send_messages(ServiceBusMessage("in time"))
        issuer.keys.clear()
        issuer.rotate("another")

        def send_on() -> None:
            deadline = time.monotonic() + 25
            while time.monotonic() < deadline:
                sender.send_messages(ServiceBusMessage("as long as it may"))
                time.sleep(0.5)

        with pytest.raises(ServiceBusError):
            send_on()
    bus.close()


@TIMED
def test_keys_are_changed_and_read_again(believer: BrokerProcess, issuer: IssuerServer) -> None:
    """A new key is fetched when a token names it; `peeklock reload` takes old ones away."""
    rest = RestClient(believer.http_port)

    def status(token: str) -> int:
        return rest.ask(
            "POST", "/orders/messages", b"", {"Authorization": f"Bearer {token}"}
        ).status

    older = issuer.now("Send")
    assert status(older) == 201
    name = f"key-{len(issuer.keys)}"
    issuer.rotate(name)
    newer = issuer.now("Send")
    deadline = time.monotonic() + 25
    while status(newer) != 201:
        assert time.monotonic() < deadline
        time.sleep(0.5)
    assert status(older) == 201
    fetched = issuer.asked.count("/keys")
    forged = LocalIssuer()
    forged.rotate("unknown")
    for _ in range(20):
        assert status(forged.token(int(time.time() * 1000), "Send")) == 401
    assert issuer.asked.count("/keys") <= fetched + 1, "nobody can have them fetched often"
    for each in list(issuer.keys)[:-1]:
        del issuer.keys[each]
    assert "token issuers" in reload(believer)
    assert (status(older), status(newer)) == (401, 201)
    write(believer, issuer, Roles=[{"Name": "other", "Rights": ["Send"]}])
    assert "token issuers" in reload(believer)
    assert status(newer) == 401, "none of its roles is worth anything"
    rest.close()


def reload(broker: BrokerProcess) -> str:
    ours = {
        "PEEKLOCK_CONNECTION_STRING": broker.connection_string,
        "PEEKLOCK_HTTP_PORT": str(broker.http_port),
    }
    done = subprocess.run(
        [sys.executable, "-m", "peeklock", "reload"],
        env=os.environ | ours,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
