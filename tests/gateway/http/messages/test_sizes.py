"""How large what is sent by REST may be, and that nothing larger is read."""

from __future__ import annotations

import json

from tests.gateway.http.messages.rest_harness import BATCH, RestHarness, nothing_stored, serve


def test_a_message_may_be_as_large_as_its_entity_allows() -> None:
    """R-T6"""

    async def scenario(rest: RestHarness) -> None:
        size = rest.bus.queue().message_size_max
        await rest.send(bytes(size - 100))
        assert len((await rest.take()).body) == size - 100
        for too_large in (size, size + 1_000_000):
            answered = await rest.ask("POST", "/q/messages", bytes(too_large))
            assert answered.status == 403
            assert f"the entity takes {size} bytes" in answered.detail
        await nothing_stored(rest)

    serve(scenario)


def test_a_batch_may_be_as_large_as_a_message() -> None:
    async def scenario(rest: RestHarness) -> None:
        size = rest.bus.queue().message_size_max
        headers = {"Content-Type": BATCH}
        fitting = json.dumps([{"Body": "\n" * (size // 2 - 200)}] * 2).encode()
        assert len(fitting) > size
        assert (await rest.ask("POST", "/q/messages", fitting, headers)).status == 201
        both = [await rest.take(), await rest.take()]
        assert {each.body for each in both} == {b"\n" * (size // 2 - 200)}
        larger = json.dumps([{"Body": "x" * (size // 2)}] * 2).encode()
        assert (await rest.ask("POST", "/q/messages", larger, headers)).status == 403
        await nothing_stored(rest)

    serve(scenario)


def test_a_body_in_chunks_is_bounded_too() -> None:
    async def scenario(rest: RestHarness) -> None:
        chunk = b"8000\r\n" + bytes(0x8000) + b"\r\n"
        head = (
            "POST /q/messages HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n"
            f"Authorization: {rest.token()}\r\n\r\n"
        ).encode()
        caller = await rest.connect()
        caller.writer.write(head + chunk * 3 + b"0\r\n\r\n")
        assert (await caller.answer()).status == 201
        assert len((await rest.take()).body) == 0x8000 * 3
        caller.writer.write(head + chunk * 20)
        answered = await caller.answer()
        assert answered.status == 403
        assert await caller.reader.read() == b""
        await caller.close()
        await nothing_stored(rest)

    serve(scenario)


def test_nobody_makes_us_read_much_without_a_right() -> None:
    async def scenario(rest: RestHarness) -> None:
        caller = await rest.connect()
        caller.writer.write(
            b"POST /q/messages HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n"
        )
        # The answer comes before the body.
        assert (await caller.answer()).status == 401
        await caller.close()
        for path in ("/q/messages/head", "/q/messages/1/x"):
            answered = await rest.ask("DELETE", path, bytes(70_000))
            assert answered.status == 400
            assert "too large" in answered.detail

    serve(scenario)


def test_a_client_that_asks_whether_to_go_on_is_told_so() -> None:
    async def scenario(rest: RestHarness) -> None:
        caller = await rest.connect()
        head = (
            "POST /q/messages HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n"
            f"Expect: 100-continue\r\nAuthorization: {rest.token()}\r\n\r\n"
        )
        caller.writer.write(head.encode())
        assert await caller.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        caller.writer.write(b"abc")
        assert (await caller.answer()).status == 201
        await caller.close()

    serve(scenario)
