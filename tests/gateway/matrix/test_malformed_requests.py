"""Heads, paths and tokens that are none: a clear error, nothing is changed, and life goes on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import quote, unquote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peeklock.auth.rights import DEVELOPMENT_KEY, ROOT_RULE_NAME
from peeklock.auth.sas import generate_sas
from tests.gateway.http.admin.admin_harness import entry, queue, rule, sql, subscription
from tests.gateway.matrix.amqp_client import AmqpClient
from tests.gateway.matrix.credentials import HOST, HOUR_MS
from tests.gateway.matrix.http_client import ATOM_TYPE, HttpConnection, check_refused, request
from tests.gateway.matrix.watched_broker import WatchedBroker, inhabit

ATOM = ("Content-Type", ATOM_TYPE)
GUID = "00000000-0000-0000-0000-000000000001"
LONG = "x" * 261

# Names that no entity can have.
NO_NAMES = [
    "..",
    ".",
    "../q",
    "q/..",
    "q/../t",
    "a/./b",
    "%2e%2e",
    "%2E%2E/q",
    "%2e%2e%2fq",
    "a//b",
    "%00",
    "q%00",
    "%00q",
    "q%0d%0aX-Header:%201",
    "%",
    "%zz",
    "%f",
    "q%",
    "%FF",
    "%C3%A9%FF",
    "%ED%A0%80",
    "%252e%252e",
    "a%5Cb",
    "a%20b",
    "a%3Cb%3E",
    "a%22b",
    "a*b",
    "a'b",
    "a;b",
    "a:b",
    "a@b",
    "-a",
    "_a",
    "a-",
    "$",
    "$management",
    "q/$management",
    "%E2%80%AEq",
    "%F0%9F%90%8Dq%F0%9F%90%8D",
    LONG,
    "x" * 5000,
    "x" * 60_000,
    "a/" * 200 + "b",
]
# Places that are none, whatever the verb.
NO_PLACES = [
    "/",
    "//",
    "///",
    "/$Resources",
    "/$Resources/",
    "/$Resources/nothing",
    "/$Resources/queues/x",
    "/$Resources/../q",
    "/%24Resources/%00",
]
NO_LISTS = [
    "$skip=-1",
    "$skip=x",
    "$skip=1.5",
    "$skip=" + "9" * 5000,
    "$skip=%D9%A1",
    "$skip=%00",
    "$top=-1",
    "$top=x",
    "$top=99999999999999999999",
    "%24skip=-2",
    "$skip=",
]


def settled(scenario: Callable[[WatchedBroker], Awaitable[None]]) -> None:
    async def visit(broker: WatchedBroker) -> None:
        await broker.queue("q")
        await broker.topic("t")
        await scenario(broker)

    inhabit(visit)


# --- paths


@pytest.mark.parametrize("verb", ["PUT", "UPDATE", "GET", "DELETE"])
def test_names_that_no_entity_can_have(verb: str) -> None:
    """As a queue, a subscription and a rule: no such name is made, changed, shown or deleted."""

    async def visit(broker: WatchedBroker) -> None:
        more = (("If-Match", "*"),) if verb == "UPDATE" else ()
        method = "PUT" if verb == "UPDATE" else verb
        for name in NO_NAMES:
            targets = {f"/{name}": queue()}
            if "/" not in unquote(name):
                targets[f"/t/Subscriptions/{name}"] = subscription()
                targets[f"/t/Subscriptions/s/Rules/{name}"] = rule(sql("a = 1"))
            for target, description in targets.items():
                body = entry(description).encode() if method == "PUT" else b""
                raw = request(broker, method, target, body, ATOM, *more)
                reply = await check_refused(broker, raw)
                assert reply.status in (400, 404), target

    settled(visit)


@pytest.mark.parametrize("method", ["PUT", "GET", "DELETE", "POST"])
def test_places_that_are_none(method: str) -> None:
    async def visit(broker: WatchedBroker) -> None:
        for target in NO_PLACES:
            if (method, target.partition("?")[0]) == ("GET", "/"):
                continue  # the service document
            body = entry(queue()).encode() if method == "PUT" else b""
            raw = request(broker, method, target, body, ATOM)
            assert (await check_refused(broker, raw)).status in (400, 404, 405), target

    settled(visit)


@pytest.mark.parametrize(
    "path", ["$Resources/queues", "$Resources/topics", "t/Subscriptions", "t/Subscriptions/s/Rules"]
)
def test_pages_that_no_list_has(path: str) -> None:
    async def visit(broker: WatchedBroker) -> None:
        for query in NO_LISTS:
            raw = request(broker, "GET", f"/{path}?api-version=2021-05&{query}")
            # An empty value is none, or is refused: both are an answer.
            if query.endswith("="):
                line = await HttpConnection.to(broker)
                assert (await line.say(raw)).status in (200, 400)
                await line.close()
            else:
                assert (await check_refused(broker, raw)).status == 400, query

    settled(visit)


@pytest.mark.parametrize("name", NO_NAMES, ids=lambda name: str(name)[:20])
def test_messages_of_entities_that_cannot_be(name: str) -> None:
    """Sending, receiving and settling find nothing at such a path."""
    targets = [
        ("POST", f"/{name}/messages"),
        ("POST", f"/{name}/messages/head?timeout=0"),
        ("DELETE", f"/{name}/messages/head?timeout=0"),
        ("PUT", f"/{name}/messages/1/{GUID}"),
        ("POST", f"/{name}/messages/1/{GUID}"),
        ("DELETE", f"/t/subscriptions/{name}/messages/1/{GUID}"),
    ]

    async def visit(broker: WatchedBroker) -> None:
        for method, target in targets:
            raw = request(broker, method, target, b"x" if method == "POST" else b"")
            # One that differs from a known entity in nothing but its way of being written is it.
            reply = await check_refused(broker, raw)
            assert reply.status in (400, 404), target

    settled(visit)


@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("POST", "/messages"),
        ("POST", "//messages"),
        ("POST", "/messages/head"),
        ("DELETE", "//messages/head?timeout=0"),
        ("POST", "/q/messages/head?timeout=x"),
        ("POST", "/q/messages/head?timeout=-1"),
        ("DELETE", "/q/messages/head?timeout=1.5"),
        ("DELETE", "/q/messages/head?timeout=" + "9" * 5000),
        ("POST", "/q/messages/head?timeout=%D9%A1"),
        ("POST", "/q/messages/head?timeout="),
        ("DELETE", "/q/messages/1/x"),
        ("DELETE", "/q/messages/1/%00"),
        ("DELETE", f"/q/messages/%00/{GUID}"),
        ("PUT", f"/q/messages/../{GUID}"),
        ("POST", f"/q/messages/{'9' * 5000}/{GUID}"),
        ("POST", f"/q/messages//{GUID}"),
        ("DELETE", "/q/messages/1/ffffffff-ffff-ffff-ffff-ffffffffffff"),
        ("DELETE", "/q/messages/1/" + "f" * 32),
        ("DELETE", f"/q/messages/1/{GUID}/more"),
        ("PUT", "/q/messages/1"),
        ("POST", "/$stores/messages"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_messages_that_are_none(method: str, target: str) -> None:
    async def visit(broker: WatchedBroker) -> None:
        assert (await check_refused(broker, request(broker, method, target))).status < 500

    settled(visit)


@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("POST", "/$stores/../offline"),
        ("POST", "/$stores//offline"),
        ("POST", "/$stores/%00/offline"),
        ("POST", "/$stores/..%2f..%2fetc/online?make=true"),
        ("POST", f"/$stores/{LONG}/online?make=true"),
        ("POST", "/$stores/%F0%9F%90%8D/online?make=true"),
        ("GET", "/$stores/"),
        ("GET", "/$stores/x/y/z"),
        ("GET", "/%24stores/../x"),
    ],
)
def test_stores_that_are_none(method: str, target: str) -> None:
    """No name of a store leads to another place."""

    async def visit(broker: WatchedBroker) -> None:
        assert (await check_refused(broker, request(broker, method, target))).status < 500

    settled(visit)


# --- heads


@pytest.mark.parametrize(
    "raw",
    [
        b"\r\n\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET /q\r\n\r\n",
        b"GET /q HTTP/9.9\r\n\r\n",
        b"GET /q HTTP/1.1\r\n\r\n",
        b"GET  /q HTTP/1.1\r\nHost: h\r\n\r\n",
        b"GET /q x HTTP/1.1\r\nHost: h\r\n\r\n",
        b"GET /\xc3\xa9 HTTP/1.1\r\nHost: h\r\n\r\n",
        b"GET /\x00 HTTP/1.1\r\nHost: h\r\n\r\n",
        b"G\xffT /q HTTP/1.1\r\nHost: h\r\n\r\n",
        b"GET /q HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET /q HTTP/1.1\r\nHost: h\r\nno colon\r\n\r\n",
        b"GET /q HTTP/1.1\r\nHost: h\r\n: no name\r\n\r\n",
        b"GET /q HTTP/1.1\r\nHost: h\r\nX: a\x00b\r\n\r\n",
        b"PUT /q HTTP/1.1\r\nHost: h\r\nContent-Length: -1\r\n\r\n",
        b"PUT /q HTTP/1.1\r\nHost: h\r\nContent-Length: x\r\n\r\n",
        b"PUT /q HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"PUT /q HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999999999999999\r\n\r\n",
        b"PUT /q HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"PUT /q HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"POST /q/messages HTTP/1.1\r\nHost: h\r\nContent-Length: 9999999999\r\n\r\n",
        b"PUT /q HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0",
        b"PUT /q HTTP/1.0\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"GET /q HTTP/1.1\nHost: h\n\n",
        b"GET /q HTTP/1.1\r\nHost: h\nX: y\r\n\r\n",
        b"GET /q HTTP/1.1\r\nHost: h\r\nX: a\rb\r\n\r\n",
        b"GET /q HTTP/1.1\r\nHost: h\r\n" + b"X: y\r\n" * 12_000 + b"\r\n",
        b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\nHost: h\r\n\r\n",
        b"GET /q HTTP/1.1\r\nHost: h\r\nX: " + b"x" * 70_000 + b"\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"AMQP\x00\x01\x00\x00\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\n",
        b"OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n",
        b"CONNECT h:443 HTTP/1.1\r\nHost: h\r\n\r\n",
    ],
    ids=lambda raw: repr(bytes(raw)[:30]),
)
def test_what_is_no_request(raw: bytes) -> None:
    """Refused with or without having been read to its end."""

    async def visit(broker: WatchedBroker) -> None:
        await check_refused(broker, raw)

    settled(visit)


@pytest.mark.parametrize(
    "headers",
    [
        [("a b", "x")],
        [("a", "1"), ("a", "2")],
        [("UserProperties", "x")],
        [("UserProperties", "[]")],
        [("UserProperties", '{"a": {}}')],
        [("UserProperties", '{"a":' * 5000)],
        [("UserProperties", '{"a": 1}'), ("a", "2")],
        [("a", "x" * 33_000)],
        [(f"a{each}", "x" * 1000) for each in range(66)],
        [("BrokerProperties", b"\xff\xfe{}")],
        [("Content-Length", "7")],
    ],
    ids=lambda value: str(value)[:30],
)
def test_headers_that_no_message_can_have(headers: list[tuple[str, str | bytes]]) -> None:
    async def visit(broker: WatchedBroker) -> None:
        for entity in ("q", "t"):
            raw = request(broker, "POST", f"/{entity}/messages", b"x", *headers)
            await check_refused(broker, raw)

    settled(visit)


# --- tokens


def broken_tokens(broker: WatchedBroker) -> dict[str, bytes]:
    good = broker.root()
    now = broker.clock.now()
    resource, signature, expiry, name = good.partition(" ")[2].split("&")
    head = "SharedAccessSignature "
    texts = {
        "empty": "",
        "a word": "x",
        "the name alone": "SharedAccessSignature",
        "nothing behind it": head,
        "two": f"{good}, {good}",
        "another scheme": "Basic cm9vdDpyb290",
        "a bearer": "Bearer x",
        "a web token": "Bearer eyJhbGciOiJub25lIn0.e30.c2ln",
        "no resource": head + "&".join([signature, expiry, name]),
        "no signature": head + "&".join([resource, expiry, name]),
        "no expiry": head + "&".join([resource, signature, name]),
        "no rule": head + "&".join([resource, signature, expiry]),
        "two resources": f"{good}&{resource}",
        "two resources that differ": f"{good}&sr=https%3A%2F%2Flocalhost%2Fother",
        "two signatures": f"{good}&{signature}",
        "two expiries": f"{good}&se=99999999999",
        "two rules": f"{good}&skn=other",
        "no values": head + "sr=&sig=&se=&skn=",
        "an expiry in words": good.replace(expiry, "se=tomorrow"),
        "a negative expiry": good.replace(expiry, "se=-1"),
        "a broken expiry": good.replace(expiry, "se=1700003600.5"),
        "an expiry of many digits": good.replace(expiry, "se=" + "9" * 5000),
        "another expiry": good.replace(expiry, "se=1999999999"),
        "another resource": good.replace(resource, "sr=https%3A%2F%2Flocalhost%2Fq"),
        "a resource encoded again": good.replace(resource, resource.replace("%", "%25")),
        "another rule": good.replace(name, "skn=other"),
        "a signature that is none": good.replace(signature, "sig=%00%FF"),
        "the signature of another key": generate_sas(
            f"https://{HOST}/", ROOT_RULE_NAME, "another", now + HOUR_MS
        ),
        "an expired one": generate_sas(
            f"https://{HOST}/", ROOT_RULE_NAME, DEVELOPMENT_KEY, now - 1000
        ),
        "encoded as a whole": quote(good, safe=""),
        "endless encoding": head + "sr=%" + "25" * 8000 + "&sig=x&se=1&skn=x",
        "too long": good + "&x=" + "x" * 20_000,
        "another alphabet": good.replace("localhost", "l\xf6calhost"),
    }
    texts |= {f"cut at {at}": good[:at] for at in range(1, len(good), 16)}
    return {name: text.encode("latin-1") for name, text in texts.items()}


@pytest.mark.parametrize(
    ("method", "target", "body"),
    [
        ("PUT", "/new", entry(queue()).encode()),
        ("GET", "/$Resources/queues", b""),
        ("DELETE", "/q", b""),
        ("POST", "/q/messages", b"x"),
        ("DELETE", "/q/messages/head?timeout=0", b""),
        ("DELETE", f"/q/messages/1/{GUID}", b""),
        ("GET", "/$stores", b""),
        ("POST", "/$stores/x/offline", b""),
    ],
)
def test_tokens_that_are_none(method: str, target: str, body: bytes) -> None:
    """At every node of HTTP: 401 with a reason, whatever it is that was shown."""

    async def visit(broker: WatchedBroker) -> None:
        for name, token in broken_tokens(broker).items():
            raw = request(broker, method, target, body, ATOM, token=token)
            assert (await check_refused(broker, raw)).status == 401, name

    settled(visit)


def test_tokens_that_are_none_at_the_token_node() -> None:
    """400 for what cannot be read and 401 for what is wrong; the connection goes on."""

    async def visit(broker: WatchedBroker) -> None:
        peer = await AmqpClient.of(broker)
        for name, token in broken_tokens(broker).items():
            status = await peer.put(token.decode("latin-1"), "q")
            assert status in (400, 401), name
            assert await peer.sender("q") == "amqp:unauthorized-access"
        nothing: list[Any] = [None, 5, b"x", [], {}]
        for wrong in nothing:
            assert await peer.put(wrong, "q") == 400
        assert await peer.put(broker.root(), "q") == 202
        assert await peer.sender("q") == ""

    settled(visit)


@pytest.mark.parametrize("times", [1, 2])
def test_names_of_rules_may_be_encoded_twice(times: int) -> None:
    """Protocol 2.3: one of the clients does, where a name has special letters."""

    async def visit(broker: WatchedBroker) -> None:
        token = broker.root()
        odd = "".join(f"%{ord(letter):02X}" for letter in ROOT_RULE_NAME)
        for _ in range(times - 1):
            odd = quote(odd, safe="")
        shown = token.replace(f"skn={ROOT_RULE_NAME}", f"skn={odd}")
        answer = await broker.ask("GET", "/$Resources/queues", shown)
        assert answer.status == 200

    settled(visit)


@settings(max_examples=60)
@given(st.integers(0, 200), st.binary(min_size=1, max_size=3))
def test_a_token_with_a_wrong_letter_opens_nothing(at: int, letters: bytes) -> None:
    """Whichever letter it is: nothing is opened unless the token says the same as before."""

    async def visit(broker: WatchedBroker) -> None:
        good = broker.root()
        spot = at % len(good)
        shown = good[:spot] + letters.decode("latin-1") + good[spot + len(letters) :]
        answer = await broker.ask("DELETE", "/q", shown)
        # In the head of the token and in the name of the rule case or encoding may differ.
        is_same = unquote(shown).lower() == unquote(good).lower()
        assert answer.status == 401 or (is_same and answer.status == 200)
        assert (broker.broker.find("ns", "q") is None) == (answer.status == 200)

    settled(visit)


@settings(max_examples=60)
@given(
    st.lists(
        st.sampled_from(
            [
                "q",
                "t",
                "..",
                "",
                "%00",
                "%2F",
                "messages",
                "head",
                "$",
                "s",
                "subscriptions",
                "rules",
                "$Resources",
                "queues",
                "%FF",
                GUID,
                "1",
                "$stores",
                "$Default",
            ]
        ),
        max_size=7,
    ),
    st.sampled_from(["GET", "HEAD", "POST", "PATCH", "OPTIONS", "TRACE"]),
)
def test_any_path_is_answered(parts: list[str], method: str) -> None:
    """No path is a failure of the broker, and nothing is lost by looking."""
    if parts and parts[-1] == "head":
        return

    async def visit(broker: WatchedBroker) -> None:
        target = "/" + "/".join(parts)
        answer = await broker.ask(method, target, broker.root(), b"x")
        assert answer.status < 500, target
        assert broker.broker.find("ns", "q") is not None
        assert broker.broker.find("ns", "t/Subscriptions/s") is not None

    settled(visit)
