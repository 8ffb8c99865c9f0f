"""Our own client's connection and links, against a broker in a process of its own."""

import asyncio
import contextlib
import gc
import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from peeklock.amqp.messages.message import DATA_BODY, AmqpMessage, decode_message, encode_message
from peeklock.amqp.messages.message_forms import Properties
from peeklock.amqp.sessions.delivery import IncomingDelivery
from peeklock.amqp.values.composites import ACCEPTED, encode_modified
from peeklock.amqp.values.types import Int
from peeklock.client.connections.config import ClientConfig
from peeklock.client.connections.connection import ClientConnection
from peeklock.client.connections.retrying import RetryPolicy, with_retries
from peeklock.client.credentials import SasKey
from peeklock.client.exceptions import (
    MessageLockLostError,
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusCommunicationError,
    ServiceBusConnectionError,
    ServiceBusError,
    SessionCannotBeLockedError,
    SessionLockLostError,
)
from peeklock.client.receiving.prefetch import Prefetch
from peeklock.client.receiving.receiver_link import ReceiverLink
from tests.wire import sas
from tests.wire.broker_process import BrokerProcess, free_port
from tests.wire.entities import LOCK_SHORT_S, ROOT_KEY, ROOT_RULE, Queues
from tests.wire.tcp_proxy import TcpProxy

ABANDONED = encode_modified(delivery_failed=True, undeliverable_here=False)
PEEK = "com.microsoft:peek-message"
WAIT_S = 20.0
SIZES = [0, 1, 200_000, 65_536, 1_000_000, 131_072, 200_000, 7]


def message(body: bytes, session_id: str | None = None) -> bytes:
    return encode_message(
        AmqpMessage(
            properties=Properties(message_id=body[:20].decode(), group_id=session_id),
            body_kind=DATA_BODY,
            body=[body],
        )
    )


def body_of(delivery: IncomingDelivery) -> bytes:
    return bytes(decode_message(delivery.payload).body[0])


def run(
    where: BrokerProcess | ClientConfig | str,
    body: Callable[[ClientConnection], Coroutine[Any, Any, None]],
) -> None:
    """Run a test with a connection, and see that nothing is left of it."""
    if isinstance(where, BrokerProcess):
        where = where.connection_string
    config = (
        where if isinstance(where, ClientConfig) else ClientConfig.from_connection_string(where)
    )

    problems: list[dict[str, Any]] = []

    async def inside() -> None:
        asyncio.get_running_loop().set_exception_handler(
            lambda _, problem: problems.append(problem)
        )
        connection = ClientConnection(config)
        try:
            await body(connection)
        finally:
            await connection.close()
        assert asyncio.all_tasks() == {asyncio.current_task()}
        gc.collect()

    asyncio.run(inside(), debug=True)
    assert problems == []


async def receive_all(link: ReceiverLink, count: int) -> list[IncomingDelivery]:
    got: list[IncomingDelivery] = []
    while len(got) < count:
        page = await link.receive(count - len(got), WAIT_S)
        assert page, f"{len(got)} of {count} came"
        got += page
    return got


async def peek(connection: ClientConnection, entity: str) -> list[AmqpMessage]:
    arguments = {"from-sequence-number": 1, "message-count": Int(250)}
    answer = await connection.manage(entity, PEEK, arguments)
    return [decode_message(entry["message"]) for entry in answer.get("messages", [])]


@pytest.mark.smoke
def test_messages_go_in_and_come_out(broker: BrokerProcess, queue: str) -> None:
    async def body(connection: ClientConnection) -> None:
        sender = await connection.open_sender(queue)
        sent = {b"%d" % number for number in range(500)}
        await asyncio.gather(*[sender.submit(message(each)) for each in sent])
        receiver = await connection.open_receiver(queue, deletes=False)
        got = await receive_all(receiver, 500)
        assert {body_of(delivery) for delivery in got} == sent
        await asyncio.gather(
            receiver.settle(got[:400], ACCEPTED), receiver.settle(got[400:], ACCEPTED)
        )
        assert await peek(connection, queue) == []

    run(broker, body)


def test_a_killed_broker_is_found_again(own_broker: BrokerProcess) -> None:
    """What was accepted is there after the restart; what was under way fails and may be retried."""

    async def body(connection: ClientConnection) -> None:
        loop = asyncio.get_running_loop()
        sender = await connection.open_sender("plain-001")
        await asyncio.gather(*[sender.submit(message(b"%d" % n)) for n in range(100)])
        receiver = await connection.open_receiver("plain-001", deletes=False)
        got = await receiver.receive(10, WAIT_S)
        waiting = asyncio.ensure_future(receiver.receive(1000, WAIT_S))
        await waiting
        idle = asyncio.ensure_future(receiver.receive(1, WAIT_S))
        await asyncio.sleep(0.1)
        await loop.run_in_executor(None, own_broker.kill)
        with pytest.raises(ServiceBusConnectionError):
            await idle
        with pytest.raises(ServiceBusConnectionError):
            await receiver.settle(got, ACCEPTED)
        with pytest.raises(ServiceBusConnectionError):
            await sender.submit(message(b"lost"))
        with pytest.raises(ServiceBusCommunicationError):
            await connection.open_sender("plain-001")
        restart = loop.run_in_executor(None, own_broker.start)
        sender = await with_retries(
            RetryPolicy(retry_total=100, retry_backoff_factor=0.1, retry_mode="fixed"),
            lambda: connection.open_sender("plain-001"),
            within_s=30.0,
        )
        await restart
        await sender.submit(message(b"100"))
        receiver = await connection.open_receiver("plain-001", deletes=True)
        found = {body_of(delivery) for delivery in await receive_all(receiver, 101)}
        assert found == {b"%d" % number for number in range(101)}

    run(own_broker, body)


def test_a_cut_connection_is_told_and_opened_anew(broker: BrokerProcess, queue: str) -> None:
    async def body(connection: ClientConnection) -> None:
        for number in range(3):
            sender = await connection.open_sender(queue)
            await sender.submit(message(b"%d" % number))
            proxy.cut()
            gone = asyncio.get_running_loop().create_future()
            sender.when_gone = gone.set_result
            assert isinstance(await gone, ServiceBusConnectionError)
        assert len(await peek(connection, queue)) == 3

    with TcpProxy(broker.amqp_port) as proxy:
        run(sas.connection_string(proxy.port), body)


def test_no_call_hangs_however_often_the_cable_breaks(broker: BrokerProcess, queue: str) -> None:
    """Every call ends, and what is tried again until it is accepted is there."""
    policy = RetryPolicy(retry_total=1000, retry_backoff_factor=0.01, retry_mode="fixed")
    count = 120

    async def body(connection: ClientConnection) -> None:
        random_source = random.Random(7)
        is_over = asyncio.Event()

        async def break_cables() -> None:
            while not is_over.is_set():
                await asyncio.sleep(random_source.random() / 5)
                proxy.cut()

        async def send(number: int) -> None:
            link = await connection.open_sender(queue)
            await link.submit(message(b"%d" % number))
            await link.close()

        async def look(number: int) -> None:
            await peek(connection, queue)
            link = await connection.open_receiver(queue, deletes=False)
            await link.receive(1 + number % 5, 0.01)
            await link.close()

        async def worker(numbers: range) -> None:
            for number in numbers:
                await with_retries(policy, lambda: send(number))  # noqa: B023  awaited here
                with contextlib.suppress(ServiceBusError):
                    await look(number)

        breaking = asyncio.create_task(break_cables())
        await asyncio.gather(*[worker(range(first, count, 10)) for first in range(10)])
        is_over.set()
        await breaking

    async def count_all(connection: ClientConnection) -> None:
        answer = await connection.manage(
            queue, PEEK, {"from-sequence-number": 1, "message-count": Int(250)}
        )
        found: set[bytes] = set()
        while entries := answer.get("messages"):
            messages = [decode_message(entry["message"]) for entry in entries]
            found |= {bytes(each.body[0]) for each in messages}
            last = (messages[-1].message_annotations or {})["x-opt-sequence-number"]
            answer = await connection.manage(
                queue, PEEK, {"from-sequence-number": last + 1, "message-count": Int(250)}
            )
        assert found == {b"%d" % number for number in range(count)}

    with TcpProxy(broker.amqp_port, piece=1000) as proxy:
        run(sas.connection_string(proxy.port), body)
    run(broker, count_all)


def test_tokens_are_renewed_while_links_live(broker: BrokerProcess, queue: str) -> None:
    async def body(connection: ClientConnection) -> None:
        sender = await connection.open_sender(queue)
        for number in range(5):
            await sender.submit(message(b"%d" % number))
            await asyncio.sleep(1)
        assert sender.is_open
        assert len(await peek(connection, queue)) == 5

    config = ClientConfig.for_namespace(
        f"localhost:{broker.amqp_port}", SasKey(ROOT_RULE, ROOT_KEY, token_ms=3000), is_plain=True
    )
    run(config, body)


def test_a_token_that_cannot_be_renewed_ends_the_link(broker: BrokerProcess, queue: str) -> None:
    async def body(connection: ClientConnection) -> None:
        sender = await connection.open_sender(queue)
        gone = asyncio.get_running_loop().create_future()
        sender.when_gone = gone.set_result
        error = await asyncio.wait_for(gone, WAIT_S)
        assert isinstance(error, ServiceBusAuthorizationError)
        with pytest.raises((ServiceBusAuthenticationError, ServiceBusAuthorizationError)):
            await connection.open_sender(queue)

    token = sas.token(f"sb://localhost/{queue}", lifetime_s=2)
    run(sas.connection_string(broker.amqp_port, signature=token), body)


def test_a_lost_session_detaches_its_link(broker: BrokerProcess, queues: Queues) -> None:
    queue = queues.take("short-lock-session")

    async def body(connection: ClientConnection) -> None:
        sender = await connection.open_sender(queue)
        await sender.submit(message(b"x", "s"))
        link = await connection.open_receiver(queue, deletes=False, session_id="s")
        got = await link.receive(1, WAIT_S)
        with pytest.raises(SessionLockLostError):
            await link.receive(1, LOCK_SHORT_S * 3)
        with pytest.raises(SessionLockLostError):
            await link.settle(got, ACCEPTED)

    run(broker, body)


def test_sessions_are_given_one_by_one(broker: BrokerProcess, queues: Queues) -> None:
    queue = queues.take("session")

    async def body(connection: ClientConnection) -> None:
        with pytest.raises(OperationTimeoutError):
            await connection.open_receiver(queue, deletes=False, any_session=True, wait_s=0.2)
        sender = await connection.open_sender(queue)
        await asyncio.gather(*[sender.submit(message(b"x", name)) for name in ("", "a")])
        links = [
            await connection.open_receiver(queue, deletes=False, any_session=True) for _ in range(2)
        ]
        assert {link.session_id for link in links} == {"", "a"}
        assert all(link.locked_until_ms > 1_700_000_000_000 for link in links)
        with pytest.raises(SessionCannotBeLockedError):
            await connection.open_receiver(queue, deletes=False, session_id="a")
        for link in links:
            await link.close()
        # A closed link has given its session back when `close` returns.
        link = await connection.open_receiver(queue, deletes=False, session_id="a")
        assert len(await link.receive(10, WAIT_S)) == 1

    run(broker, body)


def test_a_lost_lock_is_told_to_whoever_settles(broker: BrokerProcess, queues: Queues) -> None:
    queue = queues.take("short-lock")

    async def body(connection: ClientConnection) -> None:
        sender = await connection.open_sender(queue)
        await asyncio.gather(*[sender.submit(message(b"%d" % number)) for number in range(3)])
        link = await connection.open_receiver(queue, deletes=False)
        got = await receive_all(link, 3)
        await link.settle(got[:1], ACCEPTED)
        await asyncio.sleep(LOCK_SHORT_S + 1)
        with pytest.raises(MessageLockLostError):
            await link.settle(got[1:], ACCEPTED)
        again = await receive_all(link, 2)
        await link.settle(again, ACCEPTED)

    run(broker, body)


def test_many_links_share_one_connection(broker: BrokerProcess, queues: Queues) -> None:
    names = queues.take_many("plain", 3)

    async def body(connection: ClientConnection) -> None:
        senders = await asyncio.gather(
            *[connection.open_sender(names[number % 3]) for number in range(150)]
        )
        receivers = await asyncio.gather(
            *[connection.open_receiver(name, deletes=True) for name in names for _ in range(50)]
        )
        await asyncio.gather(*[sender.submit(message(b"x")) for sender in senders])
        pages = await asyncio.gather(*[receiver.receive(10, 3.0) for receiver in receivers])
        assert sum(len(page) for page in pages) == 150
        await asyncio.gather(*[sender.close() for sender in senders[:100]])
        await asyncio.gather(*[sender.submit(message(b"y")) for sender in senders[100:]])
        assert sum([len(await peek(connection, name)) for name in names]) == 50

    with TcpProxy(broker.amqp_port) as proxy:
        run(sas.connection_string(proxy.port), body)
        assert proxy.cut() == 1


def test_an_idle_connection_stays(broker: BrokerProcess, queue: str) -> None:
    async def body(connection: ClientConnection) -> None:
        sender = await connection.open_sender(queue)
        await asyncio.sleep(3)
        assert sender.is_open
        await sender.submit(message(b"x"))

    config = ClientConfig.from_connection_string(broker.connection_string, idle_timeout_s=0.5)
    run(config, body)


@pytest.mark.parametrize("is_tls", [False, True], ids=["clear", "tls"])
@pytest.mark.parametrize("is_websocket", [False, True], ids=["amqp", "websocket"])
def test_every_way_in(broker: BrokerProcess, queue: str, is_tls: bool, is_websocket: bool) -> None:
    async def body(connection: ClientConnection) -> None:
        sender = await connection.open_sender(queue)
        large = random.Random(1).randbytes(200_000)
        await asyncio.gather(sender.submit(encode(large)), sender.submit(encode(b"x")))
        receiver = await connection.open_receiver(queue, deletes=False)
        got = await receive_all(receiver, 2)
        assert sorted(map(body_of, got), key=len) == [b"x", large]
        await receiver.settle(got, ACCEPTED)

    def encode(content: bytes) -> bytes:
        return encode_message(AmqpMessage(body_kind=DATA_BODY, body=[content]))

    config = ClientConfig.from_connection_string(
        broker.connection_string,
        is_websocket=is_websocket,
        ca_file=broker.authority if is_tls else None,
    )
    run(config, body)


def test_without_the_flag_of_the_emulator_everything_is_encrypted(
    usual_ports: BrokerProcess,
) -> None:
    async def body(connection: ClientConnection) -> None:
        sender = await connection.open_sender("plain-001")
        await sender.submit(message(b"x"))

    text = sas.connection_string(None, emulator=False)
    for is_websocket in (False, True):
        config = ClientConfig.from_connection_string(
            text, ca_file=usual_ports.authority, is_websocket=is_websocket
        )
        assert config.port == (443 if is_websocket else 5671)
        run(config, body)

    async def refused(connection: ClientConnection) -> None:
        with pytest.raises(
            ServiceBusCommunicationError, match="connection_verify names the authority"
        ):
            await connection.open_sender("plain-001")

    run(text, refused)


@pytest.mark.parametrize(
    ("rule", "key", "kind"),
    [
        (ROOT_RULE, "wrong", ServiceBusAuthenticationError),
        ("nobody", ROOT_KEY, ServiceBusAuthenticationError),
        ("listen-only", "key-that-listens", ServiceBusAuthorizationError),
    ],
)
def test_who_may_not_send_is_told(
    broker: BrokerProcess, queues: Queues, rule: str, key: str, kind: type[ServiceBusError]
) -> None:
    queue = queues.take("own-rules")

    async def body(connection: ClientConnection) -> None:
        with pytest.raises(kind) as caught:
            await connection.open_sender(queue)
        assert not caught.value.is_retryable

    run(sas.connection_string(broker.amqp_port, rule=rule, key=key), body)


def test_what_is_not_there_is_told(broker: BrokerProcess) -> None:
    async def body(connection: ClientConnection) -> None:
        openings: list[Coroutine[Any, Any, Any]] = [
            connection.open_sender("nowhere"),
            connection.open_receiver("nowhere", deletes=False),
            connection.manage("nowhere", PEEK, {}),
        ]
        for opening in openings:
            with pytest.raises(MessagingEntityNotFoundError) as caught:
                await opening
            assert not caught.value.is_retryable

    run(broker, body)


def test_nobody_there_is_told() -> None:
    async def body(connection: ClientConnection) -> None:
        with pytest.raises(ServiceBusCommunicationError) as caught:
            await connection.open_sender("q")
        assert caught.value.is_retryable

    run(sas.connection_string(free_port()), body)


def test_what_answers_something_else_is_told(broker: BrokerProcess) -> None:
    async def talk(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 this is a mail server\r\n")
        await writer.drain()
        writer.close()

    async def inside() -> None:
        server = await asyncio.start_server(talk, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        for is_websocket in (False, True):
            config = ClientConfig.from_connection_string(
                sas.connection_string(port), is_websocket=is_websocket
            )
            connection = ClientConnection(config)
            with pytest.raises(ServiceBusError):
                await connection.open_sender("q")
            await connection.close()
        server.close()
        await server.wait_closed()

    asyncio.run(inside())


@pytest.mark.parametrize("deletes", [False, True], ids=["locks", "deletes"])
def test_no_message_is_lost_by_drains_and_cancelled_calls(
    broker: BrokerProcess, queue: str, deletes: bool
) -> None:
    """R-F4: every message comes exactly once, however calls of all lengths end or are cancelled."""
    count = 1500

    async def body(connection: ClientConnection) -> None:
        random_source = random.Random(4)
        sender = await connection.open_sender(queue)

        async def send() -> None:
            for number in range(0, count, 20):
                await asyncio.gather(
                    *[sender.submit(message(b"%d" % n)) for n in range(number, number + 20)]
                )
                await asyncio.sleep(random_source.random() / 200)

        sending = asyncio.create_task(send())
        links = [await connection.open_receiver(queue, deletes=deletes) for _ in range(2)]
        got: list[int] = []

        async def receive(link: ReceiverLink) -> None:
            while len(got) < count:
                call = asyncio.ensure_future(link.receive(random_source.randrange(1, 50), 0.01))
                await asyncio.wait([call], timeout=random_source.random() / 50)
                call.cancel()
                try:
                    page = await call
                except asyncio.CancelledError:
                    continue
                got.extend(int(body_of(delivery)) for delivery in page)
                if page and not deletes:
                    await link.settle(page, ACCEPTED)

        await asyncio.wait_for(asyncio.gather(*map(receive, links)), 60)
        await sending
        assert sorted(got) == list(range(count))
        assert await peek(connection, queue) == []

    run(broker, body)


def test_a_closed_receiver_gives_back_what_was_not_taken(broker: BrokerProcess, queue: str) -> None:
    async def body(connection: ClientConnection) -> None:
        sender = await connection.open_sender(queue)
        await asyncio.gather(*[sender.submit(message(b"%d" % number)) for number in range(50)])
        link = await connection.open_receiver(queue, deletes=False)
        link.grant(100)
        taken = await link.receive(10, WAIT_S, Prefetch(100))
        await link.settle(taken, ABANDONED)
        await link.close()
        other = await connection.open_receiver(queue, deletes=False)
        got = await receive_all(other, 50)
        headers = [decode_message(delivery.payload).header for delivery in got]
        counts = [0 if header is None else header.delivery_count or 0 for header in headers]
        # Only what was abandoned counts as delivered, although it came to the buffer again.
        assert sum(counts) == len(taken)

    run(broker, body)


def test_closing_the_connection_gives_back_what_receivers_hold(
    broker: BrokerProcess, queue: str
) -> None:
    async def body(connection: ClientConnection) -> None:
        sender = await connection.open_sender(queue)
        await asyncio.gather(*[sender.submit(message(b"%d" % number)) for number in range(20)])
        link = await connection.open_receiver(queue, deletes=False)
        link.grant(100)
        while link.buffered < 20:  # noqa: ASYNC110  nobody tells of what is only kept
            await asyncio.sleep(0.01)

    async def again(connection: ClientConnection) -> None:
        link = await connection.open_receiver(queue, deletes=False)
        assert len(await receive_all(link, 20)) == 20

    run(broker, body)
    run(broker, again)


def test_large_messages_take_many_frames_both_ways(broker: BrokerProcess, queues: Queues) -> None:
    queue = queues.take("one-megabyte")

    async def body(connection: ClientConnection) -> None:
        sender = await connection.open_sender(queue)
        assert sender.max_message_size == 1 << 20
        contents = [random.Random(seed).randbytes(size) for seed, size in enumerate(SIZES)]
        encoded = [
            encode_message(AmqpMessage(body_kind=DATA_BODY, body=[each])) for each in contents
        ]
        await asyncio.gather(*map(sender.submit, encoded))
        receiver = await connection.open_receiver(queue, deletes=False)
        got = await receive_all(receiver, len(contents))
        assert sorted(map(body_of, got)) == sorted(contents)
        await receiver.settle(got, ACCEPTED)

    run(broker, body)


def test_a_thousand_requests_are_under_way_at_once(broker: BrokerProcess, queue: str) -> None:
    async def body(connection: ClientConnection) -> None:
        sender = await connection.open_sender(queue)
        await asyncio.gather(*[sender.submit(message(b"%d" % number)) for number in range(20)])
        numbers = [Int(1 + at % 20) for at in range(1000)]
        answers = await asyncio.gather(
            *[
                connection.manage(queue, PEEK, {"from-sequence-number": 1, "message-count": number})
                for number in numbers
            ]
        )
        assert [len(answer["messages"]) for answer in answers] == numbers

    run(broker, body)


def test_a_request_that_is_cancelled_disturbs_no_other(broker: BrokerProcess, queue: str) -> None:
    async def body(connection: ClientConnection) -> None:
        calls = [asyncio.ensure_future(peek(connection, queue)) for _ in range(200)]
        await asyncio.sleep(0.01)
        for call in calls[::2]:
            call.cancel()
        assert await asyncio.gather(*calls[1::2]) == [[]] * 100

    run(broker, body)
