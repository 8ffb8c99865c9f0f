"""Key sets: what ends a fetch, which ways it takes, and which keys of a set are used."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from peeklock.auth.issuer import TokenIssuer, WebToken
from peeklock.gateway.tokens import issuers as issuers_module
from peeklock.gateway.tokens.issuers import Issuers, KeysError
from peeklock.gateway.tokens.key_sets import fetch, read_keys
from tests.broker.broker_harness import until
from tests.gateway.issuer import ISSUER, LocalIssuer

NOW = 1_700_000_000_000
HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: "


class Publisher:
    """Answers each connection with what a function says, byte for byte."""

    def __init__(self) -> None:
        self.answer: Callable[[socket.socket], None] = lambda _: None
        self.count = 0
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}/keys"
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            try:
                accepted, _ = self._socket.accept()
            except OSError:
                return
            self.count += 1
            threading.Thread(target=self._serve, args=(accepted,), daemon=True).start()

    def _serve(self, accepted: socket.socket) -> None:
        with accepted:
            try:
                accepted.recv(65536)
                self.answer(accepted)
            except OSError:
                pass

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def publisher() -> Iterator[Publisher]:
    made = Publisher()
    yield made
    made.close()


def saying(text: bytes) -> Callable[[socket.socket], None]:
    return lambda accepted: accepted.sendall(text)


def dripping(accepted: socket.socket) -> None:
    """A header without end: each byte is in time, all of them never."""
    accepted.settimeout(0.02)
    accepted.sendall(b"HTTP/1.1 200 OK\r\nx: ")
    while True:
        accepted.sendall(b"x")
        try:
            if not accepted.recv(1):
                return
        except TimeoutError:
            continue


@pytest.mark.parametrize("text", [b"garbage\r\n\r\n", HEAD + b"50\r\n\r\nshort", b""])
def test_a_broken_answer_is_an_error_of_keys_and_ends_no_refresh(
    publisher: Publisher, tmp_path: Path, text: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    publisher.answer = saying(text)
    local = LocalIssuer()
    issuer = TokenIssuer(ISSUER, keys_url=publisher.url, refresh_ms=20)
    monkeypatch.setattr(issuers_module, "FETCH_PAUSE_S", 0.01)

    async def scenario() -> None:
        issuers = Issuers(tmp_path)
        assert issuers.load((issuer,)) == {}
        issuers.hold((issuer,), {})
        issuers.begin()
        await until(lambda: publisher.count >= 3)
        published = local.published()
        publisher.answer = saying(HEAD + b"%d\r\n\r\n%b" % (len(published), published))
        token = local.token(NOW, "Send")
        await until(lambda: isinstance(issuers.read(token, NOW), WebToken))
        issuers.end()

    asyncio.run(asyncio.wait_for(scenario(), 20))


def test_any_other_fault_ends_no_refresh_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    count = [0]

    def broken(_: str) -> bytes:
        count[0] += 1
        raise AssertionError("nobody thought of this")

    monkeypatch.setattr(issuers_module, "fetch", broken)
    monkeypatch.setattr(issuers_module, "FETCH_PAUSE_S", 0.001)

    async def scenario() -> None:
        issuers = Issuers(tmp_path)
        issuers.hold((TokenIssuer(ISSUER, keys_url="https://i/keys", refresh_ms=2),), {})
        issuers.begin()
        await until(lambda: count[0] >= 3)
        issuers.end()

    asyncio.run(asyncio.wait_for(scenario(), 20))
    assert "nobody thought of this" in caplog.text


def test_a_fetch_has_one_time_in_all(publisher: Publisher) -> None:
    publisher.answer = dripping
    with pytest.raises(TimeoutError, match=r"0\.3 seconds"):
        fetch(publisher.url, 0.3)
    # Nothing goes on behind it.
    for thread in threading.enumerate():
        if thread.name == "peeklock-keys":
            thread.join(5)
            assert not thread.is_alive()


def test_issuers_are_asked_side_by_side(publisher: Publisher, tmp_path: Path) -> None:
    """Each is answered only when all of them have asked."""
    published = LocalIssuer().published()
    together = threading.Barrier(3)

    def answer(accepted: socket.socket) -> None:
        together.wait(4)
        accepted.sendall(HEAD + b"%d\r\n\r\n%b" % (len(published), published))

    publisher.answer = answer
    believed = tuple(TokenIssuer(name, keys_url=publisher.url) for name in "abc")
    assert set(Issuers(tmp_path).load(believed)) == {"a", "b", "c"}


@pytest.mark.parametrize("target", ["http://idp.example/keys", "ftp://127.0.0.1/keys"])
def test_no_way_leads_to_one_that_is_less_safe(publisher: Publisher, target: str) -> None:
    head = f"HTTP/1.1 302 Found\r\nlocation: {target}\r\ncontent-length: 0\r\n\r\n"
    publisher.answer = saying(head.encode())
    with pytest.raises(Exception, match="neither https nor this machine"):
        fetch(publisher.url)


def test_a_way_on_this_machine_is_followed(publisher: Publisher) -> None:
    def answer(accepted: socket.socket) -> None:
        if publisher.count == 1:
            moved = f"HTTP/1.1 302 Found\r\nlocation: {publisher.url}\r\ncontent-length: 0\r\n\r\n"
            accepted.sendall(moved.encode())
        else:
            accepted.sendall(HEAD + b"2\r\n\r\n{}")

    publisher.answer = answer
    assert fetch(publisher.url) == b"{}"


def test_no_proxy_stands_between_us_and_this_machine(
    publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    publisher.answer = saying(HEAD + b"2\r\n\r\n{}")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    assert fetch(publisher.url) == b"{}"


UNUSABLE: list[dict[str, Any]] = [
    {"kty": "OKP", "crv": "X25519", "x": "AAAA", "kid": "bad"},
    {"kty": "OKP", "crv": "Ed448", "x": "AAAA", "kid": "bad"},
    {"kty": "EC", "crv": "P-192", "x": "AAAA", "y": "AAAA", "kid": "bad"},
    {"kty": "RSA", "alg": "RSA-OAEP", "n": "AQAB", "e": "AQAB", "kid": "bad"},
    {"kty": "RSA", "kid": "bad"},
    {"kty": "EC", "crv": "P-256", "x": 1, "y": 2, "kid": "bad"},
]


@pytest.mark.parametrize("entry", UNUSABLE)
def test_a_key_that_cannot_be_used_is_named_once_and_others_are_used(
    tmp_path: Path, entry: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    local = LocalIssuer()
    (tmp_path / "keys.json").write_bytes(local.published(entry))
    believed = (TokenIssuer(ISSUER, keys_file="keys.json"),)
    issuers = Issuers(tmp_path)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            issuers.hold(believed, issuers.load(believed))
    assert isinstance(issuers.read(local.token(NOW, "Send"), NOW), WebToken)
    assert caplog.text.count("key-not-used") == 1
    assert "bad: " in caplog.text
    assert "AQAB" not in caplog.text
    (tmp_path / "keys.json").write_text(json.dumps({"keys": [entry]}))
    with pytest.raises(KeysError, match=r"no public key that signs \(bad: "):
        issuers.load(believed)


def test_a_key_is_the_same_whatever_stands_beside_it() -> None:
    document = json.loads(LocalIssuer().published())
    before, _ = read_keys(document)
    document["keys"][0]["x5t"] = "other"
    after, _ = read_keys(document)
    assert before["first"].identity == after["first"].identity
