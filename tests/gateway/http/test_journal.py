"""The journal over HTTP: its words, its pages, its bounds."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

import pytest

from peeklock.entity.definition import QueueDefinition
from peeklock.entity.message import Message
from peeklock.entity.records import Record
from peeklock.gateway.http.answer import Answer
from peeklock.gateway.http.journal import WAITING_MAX, journal_place
from peeklock.store.codec.records import chunk_header, decode_chunk
from tests.gateway.matrix.watched_broker import WatchedBroker, inhabit


def chunks_of(answer: Answer) -> list[bytes]:
    content = answer.content
    assert answer.status == 200
    assert answer.content_type == "application/octet-stream"
    assert content is not None
    found: list[bytes] = []
    at = 0
    while at < len(content):
        (size,) = struct.unpack_from("<I", content, at)
        found.append(content[at + 4 : at + 4 + size])
        at += 4 + size
    assert at == len(content)
    return found


def header(answer: Answer, name: str) -> int:
    return int(dict(answer.headers)[f"peeklock-{name}"])


async def send(broker: WatchedBroker, path: str, body: bytes) -> None:
    assert (await broker.ask("POST", f"/{path}/messages", broker.root(), body)).status == 201


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("/q/$journal", ("q", None)),
        ("/q/$journal/", ("q", None)),
        ("/q/$journal/3", ("q", "3")),
        ("/a/b%20c/%24JOURNAL/0", ("a/b c", "0")),
        ("/$journal", None),
        ("/$journal/0", None),
        ("/q/$journal/0/1", None),
        ("/q/journal", None),
        ("/q/messages/head", None),
    ],
)
def test_paths(path: str, place: tuple[str, str | None] | None) -> None:
    assert journal_place(path) == place


def test_what_there_is_of_a_topic() -> None:
    async def visit(broker: WatchedBroker) -> None:
        await broker.topic("Events")
        await send(broker, "events", b"x")
        answer = await broker.ask("GET", "/EVENTS/$journal", broker.root())
        told: dict[str, Any] = answer.document
        assert answer.status == 200
        assert (told["entity"], told["kind"], told["format"]) == ("Events", "topic", 1)
        assert int(told["incarnation"]) > 0
        (partition,) = told["partitions"]
        assert partition == {"index": 0, "first": 0, "next": partition["next"], "available": True}
        assert partition["next"] > 0
        assert told["lanes"] == {
            "0": "",
            "1": "$DeadLetterQueue",
            "2": "$Transfer",
            "3": "$Transfer/$DeadLetterQueue",
            "4": "Subscriptions/s",
            "5": "Subscriptions/s/$DeadLetterQueue",
        }

    inhabit(visit)


def test_pages_join_without_a_gap_whatever_their_size() -> None:
    async def visit(broker: WatchedBroker) -> None:
        await broker.queue("q", message_size_max=1 << 20)
        for size in (1, 400_000, 10, 3_000, 300_000, 200_000, 7):
            await send(broker, "q", b"x" * size)
        whole = await broker.ask("GET", "/q/$journal/0?limit=8388608", broker.root())
        expected = chunks_of(whole)
        assert len(expected) >= 7
        for limit in (1, 1_000, 300_000, 700_000, 99_999_999):
            after, found = 0, []
            while True:
                target = f"/q/$journal/0?after={after}&limit={limit}"
                page = await broker.ask("GET", target, broker.root())
                chunks = chunks_of(page)
                assert header(page, "first") == 0
                if not chunks:
                    assert header(page, "next") == after
                    break
                assert sum(map(len, chunks)) <= limit or len(chunks) == 1
                assert chunk_header(chunks[0]).first == after
                found += chunks
                after = header(page, "next")
            assert found == expected
        bodies = [
            message.size
            for chunk in expected
            for record in decode_chunk(chunk, bodies=False)[1]
            for message in _messages(record)
        ]
        assert len(bodies) == 7

    inhabit(visit)


def _messages(record: Record) -> list[Message]:
    return getattr(record, "messages", [])


def test_each_partition_has_its_own() -> None:
    async def visit(broker: WatchedBroker) -> None:
        await broker.broker.put_queue(QueueDefinition("p", partitions=4), [])
        for _ in range(8):
            await send(broker, "p", b"x")
        told = (await broker.ask("GET", "/p/$journal", broker.root())).document
        assert [each["index"] for each in told["partitions"]] == [0, 1, 2, 3]
        assert all(each["next"] > 0 for each in told["partitions"])
        for index in range(4):
            answer = await broker.ask("GET", f"/p/$journal/{index}", broker.root())
            sent = [
                m
                for c in chunks_of(answer)
                for r in decode_chunk(c, False)[1]
                for m in _messages(r)
            ]
            assert len(sent) == 2
        beyond = await broker.ask("GET", "/p/$journal/4", broker.root())
        assert (beyond.status, "no partition '4'" in beyond.document["error"]) == (404, True)

    inhabit(visit)


def test_only_so_many_may_wait_for_their_turn() -> None:
    async def visit(broker: WatchedBroker) -> None:
        await broker.queue("q")
        await send(broker, "q", b"x")
        asked = [broker.ask("GET", "/q/$journal/0", broker.root()) for _ in range(WAITING_MAX + 6)]
        answers = await asyncio.gather(*asked)
        late = [answer for answer in answers if answer.status == 503]
        assert len(late) == 6
        assert all(("retry-after", "1") in answer.headers for answer in late)
        assert all(chunks_of(answer) for answer in answers if answer.status != 503)
        assert (await broker.ask("GET", "/q/$journal/0", broker.root())).status == 200

    inhabit(visit)


def test_a_store_that_fails_is_said_to_be_away() -> None:
    async def visit(broker: WatchedBroker) -> None:
        await broker.queue("q")
        await send(broker, "q", b"x")
        await broker.bus.bench.store.close()
        answer = await broker.ask("GET", "/q/$journal/0", broker.root())
        assert answer.status == 503
        assert ("retry-after", "1") in answer.headers
        told = (await broker.ask("GET", "/q/$journal", broker.root())).document
        assert told["partitions"] == [{"index": 0, "first": 0, "next": 0, "available": False}]

    inhabit(visit)
