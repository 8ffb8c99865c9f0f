"""Message sessions: accepted by name or by turn, held, renewed and lost; state and order."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest
from azure.servicebus import (
    NEXT_AVAILABLE_SESSION,
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusMessageState,
    ServiceBusReceivedMessage,
    ServiceBusReceiveMode,
    ServiceBusReceiver,
    ServiceBusSession,
)
from azure.servicebus.exceptions import (
    MessageNotFoundError,
    MessageSizeExceededError,
    OperationTimeoutError,
    ServiceBusError,
    SessionCannotBeLockedError,
    SessionLockLostError,
)

from tests.wire import sas
from tests.wire.broker_process import BrokerProcess
from tests.wire.clients import (
    Blocking,
    Bus,
    assert_nothing_comes,
    bodies,
    body,
    number,
    peek_all,
    receive,
    receive_one,
)
from tests.wire.entities import LOCK_SHORT_S, PARTITIONED, Queues
from tests.wire.tcp_proxy import TcpProxy

pytestmark = pytest.mark.side_by_side(at_once=16)

EXPIRED_S = LOCK_SHORT_S + 1.0


@contextmanager
def accepted(
    bus: Bus, queue: str, session_id: Any, *, client: ServiceBusClient | None = None, **options: Any
) -> Iterator[ServiceBusReceiver]:
    """The receiver of a session: opened here, and closed when the block ends."""
    with (
        bus.receiver(queue, session_id=session_id, client=client, **options) as receiver,
        receiver,
    ):
        yield receiver


def session(bus: Bus, receiver: ServiceBusReceiver) -> ServiceBusSession:
    found = receiver.session
    return found if bus.flavour == "sync" else cast(ServiceBusSession, Blocking(found, bus.loop))


def locked_until(message: Any) -> int:
    """What the broker says of a lock, which is the session's; the client does not show it."""
    return int(message.raw_amqp_message.annotations[b"x-opt-locked-until"])


def message(session_id: str, text: str) -> ServiceBusMessage:
    return ServiceBusMessage(text, session_id=session_id)


def send(bus: Bus, queue: str, *texts: str) -> None:
    """Send messages one by one; the first letter of each is its session."""
    bus.send(queue, *[message(text[0], text) for text in texts])


@pytest.mark.smoke
def test_a_named_session_gives_its_messages_only(bus: Bus, queues: Queues) -> None:
    """In order, without a lock of their own; completed like any other."""
    queue = queues.take("session")
    send(bus, queue, "a1", "b1", "a2")

    with accepted(bus, queue, "a") as receiver:
        got = receive(receiver, 2)
        for each in got:
            receiver.complete_message(each)
        assert_nothing_comes(receiver)
        until = session(bus, receiver).locked_until_utc

    assert bodies(got) == [b"a1", b"a2"]
    assert [each.session_id for each in got] == ["a", "a"]
    assert until is not None
    for each in got:
        assert locked_until(each) == round(until.timestamp() * 1000)
    assert timedelta(seconds=30) < until - datetime.now(UTC) <= timedelta(seconds=61)


@pytest.mark.smoke
def test_the_next_session_is_the_one_that_waits_longest(bus: Bus, queues: Queues) -> None:
    queue = queues.take("session")
    send(bus, queue, "b1", "a1", "c1")

    with (
        accepted(bus, queue, NEXT_AVAILABLE_SESSION) as first,
        accepted(bus, queue, NEXT_AVAILABLE_SESSION) as second,
        accepted(bus, queue, NEXT_AVAILABLE_SESSION) as third,
    ):
        receivers = (first, second, third)
        names = [session(bus, each).session_id for each in receivers]
        # Which partition answers first is nobody's promise.
        assert (sorted(names) if PARTITIONED else names) == (
            ["a", "b", "c"] if PARTITIONED else ["b", "a", "c"]
        )
        assert bodies([receive_one(each) for each in receivers]) == [
            f"{name}1".encode() for name in names
        ]


def test_the_empty_id_is_a_session_too(bus: Bus, queues: Queues) -> None:
    """And not the same as none."""
    queue = queues.take("session")
    send(bus, queue, "a1")
    bus.send(queue, message("", "nameless"))

    with accepted(bus, queue, "") as receiver:
        got = receive_one(receiver)
        receiver.complete_message(got)

    assert (body(got), got.session_id) == (b"nameless", "")


def test_no_session_within_the_time_allowed(bus: Bus, queues: Queues) -> None:
    """The attach is held for as long as the client says, and then refused."""
    queue = queues.take("session")
    client = bus.client(retry_total=0)

    begin = time.monotonic()
    with (
        pytest.raises(OperationTimeoutError),
        accepted(bus, queue, NEXT_AVAILABLE_SESSION, client=client, max_wait_time=10) as receiver,
    ):
        receive_one(receiver)
    assert 8 < time.monotonic() - begin < 14


def test_a_message_that_arrives_meanwhile_ends_the_wait(bus: Bus, queues: Queues) -> None:
    queue = queues.take("session")
    timer = threading.Timer(2.0, send, (bus, queue, "a1"))
    timer.start()

    with accepted(bus, queue, NEXT_AVAILABLE_SESSION, max_wait_time=15) as receiver:
        assert body(receive_one(receiver)) == b"a1"
        assert session(bus, receiver).session_id == "a"
    timer.join()


def test_a_session_that_another_holds_cannot_be_accepted(bus: Bus, queues: Queues) -> None:
    queue = queues.take("session")
    client = bus.client(retry_total=0)

    with accepted(bus, queue, "a"):
        with (
            pytest.raises(SessionCannotBeLockedError),
            accepted(bus, queue, "a", client=client),
        ):
            pass
        # Its neighbour is free.
        with accepted(bus, queue, "b", client=client):
            pass


def test_sessions_and_plain_queues_do_not_mix(bus: Bus, queues: Queues) -> None:
    """Clear refusals; a session id on a plain queue is fine."""
    queue = queues.take("session")
    ordinary = queues.take("plain")

    with pytest.raises(ServiceBusError, match="non-sessionful"), bus.receiver(queue) as receiver:
        receive_one(receiver)
    with (
        pytest.raises(ServiceBusError, match="does not require sessions"),
        accepted(bus, ordinary, "a"),
    ):
        pass
    with pytest.raises(ServiceBusError, match="SessionId"):
        bus.send(queue, ServiceBusMessage("no session"))
    bus.send(ordinary, message("a", "x"))
    with bus.receiver(ordinary) as receiver:
        assert receive_one(receiver).session_id == "a"


def test_a_closed_receiver_frees_its_session_at_once(bus: Bus, queues: Queues) -> None:
    """What it did not settle comes back in order, and no delivery is counted."""
    queue = queues.take("session")
    send(bus, queue, "a1", "a2", "a3")

    with accepted(bus, queue, "a") as receiver:
        first, _ = receive(receiver, 2)
        receiver.complete_message(first)
    with accepted(bus, queue, "a") as receiver:
        got = receive(receiver, 2)

    assert bodies(got) == [b"a2", b"a3"]
    assert [each.delivery_count for each in got] == [0, 0]


def test_an_abandoned_message_is_the_next_again(bus: Bus, queues: Queues) -> None:
    queue = queues.take("session")
    send(bus, queue, "a1", "a2")

    with accepted(bus, queue, "a") as receiver:
        receiver.abandon_message(receive_one(receiver))
        again = receive(receiver, 2)

    assert bodies(again) == [b"a1", b"a2"]
    assert [each.delivery_count for each in again] == [1, 0]


def test_dead_letters_have_no_sessions(bus: Bus, queues: Queues) -> None:
    """They keep the session id, and a plain receiver takes them."""
    queue = queues.take("session")
    send(bus, queue, "a1")

    with accepted(bus, queue, "a") as receiver:
        receiver.dead_letter_message(receive_one(receiver), reason="Why")
    with bus.dead_letters(queue) as dead_letters:
        dead = receive_one(dead_letters)
        dead_letters.complete_message(dead)

    assert (dead.session_id, dead.dead_letter_reason) == ("a", "Why")


def test_receive_and_delete(bus: Bus, queues: Queues) -> None:
    queue = queues.take("session")
    send(bus, queue, "a1", "a2")
    mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE

    with accepted(bus, queue, "a", receive_mode=mode) as receiver:
        got = receive(receiver, 2)
        assert bodies(got) == [b"a1", b"a2"]
        until = session(bus, receiver).locked_until_utc
        assert until is not None
        assert {locked_until(each) for each in got} == {round(until.timestamp() * 1000)}
        assert peek_all(receiver) == []


@pytest.mark.smoke
def test_a_session_keeps_its_state(bus: Bus, queues: Queues) -> None:
    """Nothing at first; bytes that survive the receiver; cleared by null."""
    queue = queues.take("session")

    with accepted(bus, queue, "a") as receiver:
        assert session(bus, receiver).get_state() is None
        session(bus, receiver).set_state(b"\x00first")
    with accepted(bus, queue, "a") as receiver:
        assert session(bus, receiver).get_state() == b"\x00first"
        session(bus, receiver).set_state(None)
        assert session(bus, receiver).get_state() is None
        # No bytes are no state.
        session(bus, receiver).set_state(b"x")
        session(bus, receiver).set_state(b"")
        assert session(bus, receiver).get_state() is None


def test_a_state_that_is_too_large_is_refused(bus: Bus, queues: Queues) -> None:
    """With words, and nothing else is lost by it."""
    queue = queues.take("session")

    with accepted(bus, queue, "a") as receiver:
        most = b"x" * 262_144
        session(bus, receiver).set_state(most)
        with pytest.raises(MessageSizeExceededError, match="at most 262144 bytes"):
            session(bus, receiver).set_state(most + b"x")
        assert session(bus, receiver).get_state() == most


def test_a_lock_is_renewed(bus: Bus, queues: Queues) -> None:
    """R-L2: each renewal is a whole duration from then."""
    queue = queues.take("short-lock-session")
    send(bus, queue, "a1")

    with accepted(bus, queue, "a") as receiver:
        got = receive_one(receiver)
        before = session(bus, receiver).locked_until_utc
        renewals = []
        for _ in range(3):
            time.sleep(LOCK_SHORT_S - 2)
            renewals.append(session(bus, receiver).renew_lock())
        assert before is not None
        assert renewals[-1] - before > timedelta(seconds=LOCK_SHORT_S)
        receiver.complete_message(got)
        assert peek_all(receiver) == []


def test_the_client_renews_a_lock_by_itself(bus: Bus, queues: Queues) -> None:
    """R-L2."""
    queue = queues.take("short-lock-session")
    send(bus, queue, "a1")
    renewer = bus.renewer()

    with accepted(bus, queue, "a") as receiver:
        got = receive_one(receiver)
        renewer.register(receiver, receiver.session, max_lock_renewal_duration=60)
        time.sleep(2.5 * LOCK_SHORT_S)
        receiver.complete_message(got)
    renewer.close()


def test_a_lost_lock_ends_everything(bus: Bus, queues: Queues) -> None:
    """R-S8: settlement, state, renewal and receiving; the delivery counts."""
    queue = queues.take("short-lock-session")
    send(bus, queue, "a1")

    with accepted(bus, queue, "a") as receiver:
        got = receive_one(receiver)
        time.sleep(EXPIRED_S)
        with pytest.raises(SessionLockLostError):
            receiver.complete_message(got)
        with pytest.raises(SessionLockLostError):
            session(bus, receiver).renew_lock()
        with pytest.raises(SessionLockLostError):
            session(bus, receiver).get_state()
        with pytest.raises(SessionLockLostError):
            session(bus, receiver).set_state(b"x")
        with pytest.raises(SessionLockLostError):
            receiver.receive_messages(max_wait_time=1)
        with accepted(bus, queue, "a") as again:
            assert receive_one(again).delivery_count == 1


def test_a_broken_connection_loses_the_session(
    bus: Bus, broker: BrokerProcess, queues: Queues
) -> None:
    """R-S8: unlike the locks of a plain queue; the session is free at once."""
    queue = queues.take("session")
    send(bus, queue, "a1")

    with TcpProxy(broker.amqp_port) as proxy:
        client = bus.client(sas.connection_string(proxy.port), retry_total=1)
        with bus.receiver(queue, session_id="a", client=client) as receiver:
            got = receive_one(receiver)
            assert proxy.cut() == 1
            with accepted(bus, queue, "a") as other:
                again = receive_one(other)
                # This client gives up at the broken connection and does not ask the broker.
                with pytest.raises(ServiceBusError):
                    receiver.complete_message(got)
                other.complete_message(again)
                assert again.delivery_count == 0


def test_peek_sees_one_session(bus: Bus, queues: Queues) -> None:
    """And goes on where it stopped."""
    queue = queues.take("session")
    send(bus, queue, "a1", "b1", "a2", "b2", "a3")

    with accepted(bus, queue, "a") as receiver:
        assert bodies(receiver.peek_messages(max_message_count=2)) == [b"a1", b"a2"]
        assert bodies(receiver.peek_messages(max_message_count=2)) == [b"a3"]
        assert receiver.peek_messages(max_message_count=2) == []


def test_deferred_messages_of_a_session(bus: Bus, queues: Queues) -> None:
    """R-S6: fetched by the holder of the session, and by nobody else."""
    queue = queues.take("session")
    send(bus, queue, "a1", "a2", "b1")
    client = bus.client(retry_total=0)

    with accepted(bus, queue, "a", client=client) as receiver:
        first, second = receive(receiver, 2)
        for each in (first, second):
            receiver.defer_message(each)
        assert_nothing_comes(receiver)
        states = [each.state for each in peek_all(receiver)]
        assert states == [ServiceBusMessageState.DEFERRED] * 2
        with accepted(bus, queue, "b", client=client) as other, pytest.raises(MessageNotFoundError):
            other.receive_deferred_messages(number(first))
        got = receiver.receive_deferred_messages([number(second), number(first)])
        assert bodies(got) == [b"a2", b"a1"]
        until = session(bus, receiver).locked_until_utc
        assert until is not None
        assert {locked_until(each) for each in got} == {round(until.timestamp() * 1000)}
        receiver.complete_message(got[0])
        receiver.abandon_message(got[1])
        (again,) = receiver.receive_deferred_messages(number(first))
        assert again.delivery_count == 2
        receiver.dead_letter_message(again)
        assert peek_all(receiver) == []


def test_deferred_messages_outlive_their_receiver(bus: Bus, queues: Queues) -> None:
    queue = queues.take("session")
    send(bus, queue, "a1")

    with accepted(bus, queue, "a") as receiver:
        deferred = receive_one(receiver)
        receiver.defer_message(deferred)
    with accepted(bus, queue, "a") as receiver:
        (got,) = receiver.receive_deferred_messages(number(deferred))
        receiver.complete_message(got)
        assert peek_all(receiver) == []


def test_scheduled_messages_arrive_in_their_session(bus: Bus, queues: Queues) -> None:
    """A receiver that holds the session gets them when they are due; cancelled ones never come."""
    queue = queues.take("session")
    due = datetime.now(UTC) + timedelta(seconds=4)

    with bus.sender(queue) as sender, accepted(bus, queue, "a") as receiver:
        first, _ = sender.schedule_messages([message("a", "a1"), message("a", "a2")], due)
        sender.schedule_messages(message("b", "b1"), due)
        sender.cancel_scheduled_messages(first)
        with pytest.raises(ServiceBusError, match="SessionId"):
            sender.schedule_messages(ServiceBusMessage("no session"), due)
        assert_nothing_comes(receiver)
        got = receive_one(receiver, within_s=12)
        receiver.complete_message(got)
    with accepted(bus, queue, NEXT_AVAILABLE_SESSION, max_wait_time=10) as receiver:
        assert body(receive_one(receiver)) == b"b1"

    assert body(got) == b"a2"
    assert got.delivery_count == 0


def test_a_scheduled_message_ends_the_wait_for_a_session(bus: Bus, queues: Queues) -> None:
    queue = queues.take("session")
    with bus.sender(queue) as sender:
        sender.schedule_messages(message("a", "a1"), datetime.now(UTC) + timedelta(seconds=3))

    with accepted(bus, queue, NEXT_AVAILABLE_SESSION, max_wait_time=15) as receiver:
        assert body(receive_one(receiver)) == b"a1"


def test_sessions_are_listed(bus: Bus, queues: Queues) -> None:
    """Those with messages or state, over several pages; or those whose state is newer."""
    queue = queues.take("session")
    names = [f"s{index:03}" for index in range(105)]
    bus.send(queue, *[message(name, "x") for name in names])
    with accepted(bus, queue, "only-state") as receiver:
        before = datetime.now(UTC) - timedelta(seconds=2)
        session(bus, receiver).set_state(b"x")

    assert listed(bus, queue) == ["only-state", *names]
    assert listed(bus, queue, state_updated_after=before) == ["only-state"]
    later = datetime.now(UTC) + timedelta(seconds=60)
    assert listed(bus, queue, state_updated_after=later) == []


def listed(bus: Bus, queue: str, **options: Any) -> list[str]:
    client = bus.client()
    if bus.flavour == "sync":
        return list(client.list_queue_sessions(queue, **options))

    async def inside() -> list[str]:
        target: Any = cast(Any, client)._target
        return [name async for name in target.list_queue_sessions(queue, **options)]

    found: list[str] = bus.loop.call(inside)
    return found


def test_five_receivers_drain_many_sessions(bus: Bus, queues: Queues) -> None:
    """Each session in its order, whoever has it; none is forgotten."""
    queue = queues.take("session")
    sessions = [f"s{index}" for index in range(10)]
    for turn in range(10):
        bus.send(queue, *[message(name, f"{turn}") for name in sessions])
    seen: dict[str, list[bytes]] = {name: [] for name in sessions}

    def drain() -> None:
        client = bus.client(retry_total=0)
        while True:
            try:
                with accepted(
                    bus, queue, NEXT_AVAILABLE_SESSION, client=client, max_wait_time=4
                ) as receiver:
                    got: list[ServiceBusReceivedMessage] = receive(receiver, 10)
                    for each in got:
                        receiver.complete_message(each)
                    seen[session(bus, receiver).session_id] += bodies(got)
            except OperationTimeoutError:
                return

    with ThreadPoolExecutor(5) as pool:
        for future in [pool.submit(drain) for _ in range(5)]:
            future.result()

    assert seen == {name: [b"%d" % turn for turn in range(10)] for name in sessions}


def test_sessions_of_a_partitioned_queue(bus: Bus, queues: Queues) -> None:
    """The session is the partition key; one that is named as well must be the same."""
    queue = queues.take("partitioned-session")
    names = [f"s{index}" for index in range(6)]
    for name in names:
        batch = [
            ServiceBusMessage(f"{turn}", session_id=name, partition_key=name) for turn in range(5)
        ]
        bus.send(queue, batch)

    seen = {}
    for _ in names:
        with accepted(bus, queue, NEXT_AVAILABLE_SESSION, max_wait_time=10) as receiver:
            got = receive(receiver, 5)
            for each in got:
                receiver.complete_message(each)
            seen[session(bus, receiver).session_id] = bodies(got)
    assert seen == {name: [b"%d" % turn for turn in range(5)] for name in names}
