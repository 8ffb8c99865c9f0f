"""The sink as Spark calls it, without Spark: what tasks send, what the driver publishes (R-D1)."""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from peeklock.amqp.values.types import Array, Int
from peeklock.client.exceptions import MessagingEntityNotFoundError
from peeklock.spark.entity_client import EntityClient
from peeklock.spark.options import OptionProblem, source_options
from peeklock.spark.sink.dispatch import BadRow, NoDuplicateDetection, Task
from peeklock.spark.sink.settlement import BadAction
from peeklock.spark.sink.sink_options import SinkOptions, sink_options
from peeklock.spark.sink.sink_writers import (
    RowsWritten,
    _publish,
    _written,
    batch_writer,
    stream_writer,
)
from tests.spark.source.reading import claim_reader
from tests.spark.spark_broker import DEAD_LETTERS, Bus
from tests.spark.structs import struct
from tests.wire.broker_process import BrokerProcess
from tests.wire.sas import connection_string
from tests.wire.tcp_proxy import TcpProxy

KINDS = {"time_to_live": pa.int64(), "sequence_number": pa.int64()}


def rows(**columns: list[Any]) -> pa.RecordBatch:
    arrays = {name: pa.array(values, KINDS.get(name)) for name, values in columns.items()}
    return pa.record_batch(arrays)


def options(bus: Bus, columns: str = "body string", **more: str) -> SinkOptions:
    return sink_options({**bus.options, **more}, struct(columns), streaming=False)


def write(
    told: SinkOptions, *batches: pa.RecordBatch, batch: int = 0, partition: int = 0
) -> RowsWritten:
    """What one attempt of a task does."""
    return _written(told, Task("writer", batch, partition), iter(batches))


def bodies(bus: Bus, entity: str) -> list[str]:
    return [str(one["Body"]) for one in bus.peek(entity)]


# --- staged, and published once


def test_nothing_is_seen_before_the_batch_is_committed(bus: Bus) -> None:
    queue = bus.queue()
    told = options(bus, queue=queue)
    second = write(told, rows(body=["c"]), partition=1)
    first = write(told, rows(body=["a", "b"]), rows(body=["d"]))
    assert bus.peek(queue) == []
    _publish(told, [second, first])
    # In the order of partitions, each as its task sent them.
    assert bodies(bus, queue) == ["a", "b", "d", "c"]


def test_a_task_that_is_tried_again_is_published_once(bus: Bus) -> None:
    """The attempts of a task stage apart; the driver knows only the one that succeeded."""
    queue = bus.queue()
    told = options(bus, queue=queue)

    def failing() -> Iterator[pa.RecordBatch]:
        yield rows(body=["a", "b"])
        raise OSError("the executor is lost")

    with pytest.raises(OSError, match="lost"):
        _written(told, Task("writer", 0, 0), failing())
    speculative = write(told, rows(body=["a", "b", "c"]))
    assert speculative.stages != {}
    _publish(told, [write(told, rows(body=["a", "b", "c"]))])
    assert bodies(bus, queue) == ["a", "b", "c"]


def test_a_batch_that_was_published_is_not_published_again(bus: Bus) -> None:
    """The driver died between publishing and Spark's note of it: all tasks write again."""
    queue = bus.queue()
    told = options(bus, queue=queue)
    _publish(told, [write(told, rows(body=["a"]))])
    _publish(told, [write(told, rows(body=["a"]))])
    _publish(told, [write(told, rows(body=["b"]), batch=1)])
    _publish(told, [write(told, rows(body=["a"]))])
    assert bodies(bus, queue) == ["a", "b"]


def test_what_is_given_up_is_dropped(bus: Bus) -> None:
    queue = bus.queue()
    writer = batch_writer({**bus.options, "queue": queue}, struct("body string"), False)
    message = writer.write(iter([rows(body=["a"])]))
    writer.abort([message, None])
    # Published now, there is nothing left of it.
    writer.commit([message])
    assert bus.peek(queue) == []


def test_a_driver_that_gives_up_drops_nothing_of_its_successor(bus: Bus) -> None:
    """Both run the same batch of the same query for a while; the old one's tasks fail."""
    queue = bus.queue()
    given = {**bus.options, "queue": queue, "writeId": "query"}
    old = batch_writer(given, struct("body string"), False)
    new = batch_writer(given, struct("body string"), False)
    of_old = old.write(iter([rows(body=["a"])]))
    of_new = new.write(iter([rows(body=["a"])]))
    old.abort([of_old, None])
    new.commit([of_new])
    assert bodies(bus, queue) == ["a"]


def test_a_named_write_is_not_repeated(bus: Bus) -> None:
    queue = bus.queue()
    for number, body in [("0", "a"), ("0", "a"), ("1", "b"), ("0", "a")]:
        given = {**bus.options, "queue": queue, "writeId": "nightly", "batchId": number}
        writer = batch_writer(given, struct("body string"), False)
        writer.commit([writer.write(iter([rows(body=[body])]))])
    assert bodies(bus, queue) == ["a", "b"]
    for _ in range(2):
        writer = batch_writer({**bus.options, "queue": queue}, struct("body string"), False)
        writer.commit([writer.write(iter([rows(body=["x"])]))])
    assert bodies(bus, queue) == ["a", "b", "x", "x"], "writes without a name are two"


def test_rows_go_where_they_say(bus: Bus) -> None:
    red, blue, topic = bus.queue(), bus.queue(), bus.topic("s")
    told = options(bus, "body string, entity string")
    message = write(told, rows(body=["1", "2", "3", "4"], entity=[red, topic, blue, red]))
    _publish(told, [message])
    assert bodies(bus, red) == ["1", "4"]
    assert bodies(bus, blue) == ["3"]
    assert bodies(bus, f"{topic}/Subscriptions/s") == ["2"]
    with pytest.raises(BadRow, match="writer/0/0/1' has no entity"):
        write(told, rows(body=["1", "2"], entity=[red, None]))
    # The option wins: rows of the source have the column too, and it says where they were.
    elsewhere = options(bus, "body string, entity string", queue=blue)
    _publish(elsewhere, [write(elsewhere, rows(body=["5"], entity=[red]), batch=1)])
    assert bodies(bus, blue) == ["3", "5"]


def test_partitioned_entities_are_published_once_too(bus: Bus) -> None:
    queue = bus.queue(EnablePartitioning=True)
    told = options(bus, "body string, partition_key string", queue=queue)
    numbers = [str(number) for number in range(200)]
    batch = rows(body=numbers, partition_key=[None if n < 50 else f"k{n % 7}" for n in range(200)])
    _publish(told, [write(told, batch)])
    _publish(told, [write(told, batch)])
    assert sorted(bodies(bus, queue)) == sorted(numbers)


@pytest.mark.parametrize("partitioned", [False, True])
def test_sessions_keep_their_order(bus: Bus, partitioned: bool) -> None:
    queue = bus.queue(RequiresSession=True, EnablePartitioning=partitioned)
    told = options(bus, "body string, session_id string", queue=queue)
    # Large enough that each session is in many parcels, which are under way at once.
    padding = "x" * 20_000
    batches = [
        rows(
            body=[f"{first + number}|{padding}" for number in range(30)],
            session_id=[f"s{number % 3}" for number in range(30)],
        )
        for first in range(0, 300, 30)
    ]
    _publish(told, [write(told, *batches)])
    seen: dict[str, list[int]] = {}
    for one in bus.drain(queue, sessions=True):
        seen.setdefault(one["SessionId"], []).append(int(str(one["Body"]).partition("|")[0]))
    assert sorted(seen) == ["s0", "s1", "s2"]
    for numbers in seen.values():
        assert numbers == sorted(numbers)
        assert len(numbers) == 100


def test_every_column_arrives(bus: Bus) -> None:
    queue = bus.queue()
    columns = (
        "body binary, message_id string, subject string, correlation_id string, content_type string"
        ", to string, reply_to string, reply_to_session_id string, time_to_live long"
        ", application_properties map"
    )
    told = options(bus, columns, queue=queue)
    values = {name: [name] for name in ("subject", "correlation_id", "to", "reply_to")}
    batch = rows(
        **values,
        body=[b"\xff\x00"],
        message_id=["mine"],
        content_type=["text/plain"],
        reply_to_session_id=["back"],
        time_to_live=[HOUR_MS],
    )
    map_of_one = pa.array([[("k", "v")]], pa.map_(pa.string(), pa.string()))
    _publish(told, [write(told, batch.append_column("application_properties", map_of_one))])
    (found,) = bus.peek(queue)
    assert found["MessageId"] == "mine"
    assert found["ContentType"] == "text/plain"
    assert found["ReplyToSessionId"] == "back"
    assert (found["Subject"], found["CorrelationId"]) == ("subject", "correlation_id")
    assert (found["To"], found["ReplyTo"]) == ("to", "reply_to")
    assert found["TimeToLiveMs"] == HOUR_MS
    assert found["ApplicationProperties"] == {"k": "v"}
    assert found["BodyBase64"] == "/wA="


HOUR_MS = 3_600_000


def test_what_no_message_can_carry_is_named(bus: Bus) -> None:
    queue = bus.queue()
    told = options(bus, "body string, message_id string", queue=queue)
    with pytest.raises(
        BadRow, match=r"id 'huge' cannot be sent to .*: it has 300,.* takes 262,144"
    ):
        write(told, rows(body=["a", "x" * 300_000], message_id=["small", "huge"]))
    # As large as it may be goes alone.
    _publish(told, [write(told, rows(body=["x" * 262_000], message_id=["big"]))])
    assert len(bus.peek(queue)) == 1


def test_a_missing_entity_is_told(bus: Bus) -> None:
    with pytest.raises(MessagingEntityNotFoundError, match="nowhere"):
        write(options(bus, queue="nowhere"), rows(body=["a"]))


# --- by ids


def test_ids_let_the_entity_drop_repeats(bus: Bus) -> None:
    """As against Azure: the entity remembers ids, and those of a row are the same each time."""
    queue = bus.queue(RequiresDuplicateDetection=True)
    told = options(bus, queue=queue, exactlyOnce="ids")
    for _ in range(2):
        message = write(told, rows(body=["a", "b"]), rows(body=["c"]))
        assert message.stages == {queue: []}
        _publish(told, [message])
    assert sorted(bodies(bus, queue)) == ["a", "b", "c"]


@pytest.mark.parametrize("partitioned", [False, True])
def test_ids_of_columns_do_not_depend_on_the_order(bus: Bus, partitioned: bool) -> None:
    queue = bus.queue(RequiresDuplicateDetection=True, EnablePartitioning=partitioned)
    told = options(
        bus, "body string, order_id string", queue=queue, exactlyOnce="ids", idColumns="order_id"
    )
    numbers = [str(number) for number in range(40)]
    write(told, rows(body=numbers, order_id=numbers))
    numbers.reverse()
    write(told, rows(body=numbers[:15], order_id=numbers[:15]), partition=1)
    write(told, rows(body=numbers[15:], order_id=numbers[15:]), partition=2)
    assert sorted(bodies(bus, queue)) == sorted(numbers)


def test_an_entity_that_forgets_ids_is_complained_of(
    bus: Bus, caplog: pytest.LogCaptureFixture
) -> None:
    queue = bus.queue()
    given = {"queue": queue, "exactlyOnce": "ids"}
    with pytest.raises(NoDuplicateDetection, match=f"'{queue}' does not detect duplicates"):
        write(options(bus, requireDuplicateDetection="fail", **given), rows(body=["a"]))
    assert bus.peek(queue) == []
    told = options(bus, requireDuplicateDetection="warn", **given)
    # What was found out is remembered for each access; another one has to find out again.
    write(replace(told, access=replace(told.access, timeout_ms=7_000)), rows(body=["a"]))
    assert "does not detect duplicates" in caplog.text
    lost = replace(told.access, http_port=9, timeout_ms=8_000)
    write(replace(told, access=lost), rows(body=["b"]))
    assert "does not say whether it detects duplicates" in caplog.text
    assert sorted(bodies(bus, queue)) == ["a", "b"]


# --- connections


def test_a_process_has_one_connection_to_a_namespace(bus: Bus) -> None:
    """Whatever it reads or writes there, and however patient it was told to be."""
    first, second = bus.queue(), bus.queue()
    with TcpProxy(bus.process.amqp_port) as proxy:
        given = {"connectionString": connection_string(proxy.port)}
        for queue, patience in ((first, "10s"), (second, "20s")):
            told = options(bus, queue=queue, retryDeadline=patience, **given)
            _publish(told, [write(told, rows(body=["a"]))])
            assert EntityClient.to(told.access, queue).receive(1, 2_000, deletes=True)
        assert proxy.cut() == 1


# --- when the broker is away


@pytest.mark.parametrize("way", ["stage", "ids"])
def test_a_lost_connection_is_no_loss(bus: Bus, way: str) -> None:
    """The cable is cut between parcels, again and again; nothing is lost and nothing twice."""
    queue = bus.queue(RequiresDuplicateDetection=way == "ids")
    with TcpProxy(bus.process.amqp_port) as proxy:
        text = connection_string(proxy.port)
        told = options(bus, queue=queue, exactlyOnce=way, connectionString=text)

        def cutting() -> Iterator[pa.RecordBatch]:
            for first in range(0, 60, 10):
                yield rows(
                    body=[f"{number:03}{'x' * 60_000}" for number in range(first, first + 10)]
                )
                proxy.cut()

        message = _written(told, Task("writer", 0, 0), cutting())
        proxy.cut()
        _publish(told, [message])
    found = [body[:3] for body in bodies(bus, queue)]
    assert sorted(found) == [f"{number:03}" for number in range(60)]


def test_a_broker_that_was_killed_has_what_it_took(
    own_broker: Callable[..., BrokerProcess],
) -> None:
    process = own_broker()
    bus = Bus(process)
    queue = bus.queue()
    told = options(bus, queue=queue)

    def killing() -> Iterator[pa.RecordBatch]:
        yield rows(body=[str(number) for number in range(50)])
        process.kill()
        process.start()
        yield rows(body=[str(number) for number in range(50, 100)])

    message = _written(told, Task("writer", 0, 0), killing())
    process.kill()
    process.start()
    _publish(told, [message])
    assert sorted(bodies(bus, queue), key=int) == [str(number) for number in range(100)]


def test_patience_ends(own_broker: Callable[..., BrokerProcess]) -> None:
    process = own_broker()
    bus = Bus(process)
    told = options(bus, queue=bus.queue(), retryDeadline="300ms")

    def leaving() -> Iterator[pa.RecordBatch]:
        yield rows(body=["a"])
        process.kill()
        yield rows(body=["b"])

    with pytest.raises(Exception, match=r"cannot reach|connection"):
        _written(told, Task("writer", 0, 0), leaving())


# --- how fast


def test_a_rate_is_kept(bus: Bus) -> None:
    queue = bus.queue()
    told = options(bus, queue=queue, maxMessagesPerSecond="400", writers="2")
    assert told.per_second == 200
    start = time.monotonic()
    write(told, rows(body=[str(number) for number in range(120)]))
    # A twentieth of it may leave at once; the rest waits for its turn.
    assert time.monotonic() - start >= 0.45


# --- settling


def claimed(told: SinkOptions, count: int) -> list[int]:
    asked = {"owner": told.consumer_id, "epoch": 1, "message-count": Int(count)}
    answer = EntityClient.to(told.access, told.entity).manage("com.peeklock:claim-messages", asked)
    numbers = answer["sequence-numbers"]
    assert isinstance(numbers, Array)
    return [int(number) for number in numbers.items]


def test_rows_settle_what_they_name(bus: Bus) -> None:
    queue = bus.queue()
    bus.send(queue, ["done", "again", "dead", "later", "back", "untouched"])
    told = options(
        bus,
        "sequence_number long, action string, reason string, description string",
        queue=queue,
        operation="settle",
        consumerId="reader",
    )
    numbers = claimed(told, 6)
    batch = rows(
        sequence_number=numbers[:5],
        action=["complete", "abandon", "deadletter", "defer", "release"],
        reason=["", None, "BadOrder", None, None],
        description=[None, None, "no address", None, None],
    )
    write(told, batch)
    # A repeat finds nothing left.
    write(told, batch)
    found = {one["Body"]: one for one in bus.peek(queue)}
    assert sorted(found) == ["again", "back", "later", "untouched"]
    assert (found["again"]["DeliveryCount"], found["back"]["DeliveryCount"]) == (1, 0)
    assert found["later"]["State"] == "deferred"
    (dead,) = bus.peek(queue + DEAD_LETTERS)
    assert dead["ApplicationProperties"]["DeadLetterReason"] == "BadOrder"
    assert dead["ApplicationProperties"]["DeadLetterErrorDescription"] == "no address"


@pytest.mark.parametrize("kept", ["auto", "broker", "deferral"])
def test_rows_are_settled_where_the_query_claimed_them(bus: Bus, kept: str) -> None:
    queue = bus.queue()
    bus.send(queue, ["done", "dead", "kept"])
    reader = claim_reader(bus, queue, ledger=kept, settlement="manual")
    end = reader.latestOffset(reader.initialOffset())
    columns = "sequence_number long, action string"
    told = options(bus, columns, queue=queue, operation="settle", ledger=kept)
    write(told, rows(sequence_number=[1, 2], action=["complete", "deadletter"]))
    assert bus.bodies(queue) == ["kept"]
    assert bus.bodies(queue + DEAD_LETTERS) == ["dead"]
    # The query was not fenced by its own job.
    assert reader.latestOffset(end) == end


def test_what_deferral_cannot_do_is_told_before_anything_is_settled(bus: Bus) -> None:
    queue = bus.queue()
    bus.send(queue, ["a", "b"])
    reader = claim_reader(bus, queue, ledger="deferral", settlement="manual")
    reader.latestOffset(reader.initialOffset())
    columns = "sequence_number long, action string"
    told = options(bus, columns, queue=queue, operation="settle", ledger="deferral")
    with pytest.raises(BadAction, match="'abandon' is not possible where claims are kept by defer"):
        write(told, rows(sequence_number=[1, 2], action=["complete", "abandon"]))
    assert bus.bodies(queue) == ["a", "b"]


@pytest.mark.parametrize(
    "where",
    [
        {"queue": "q"},
        {"queue": "q", "subQueue": "deadLetter"},
        {"topic": "t", "subscription": "s"},
        {"queue": "q" * 200},
        {"queue": "q", "consumerId": "me"},
    ],
)
def test_claims_are_settled_where_and_as_they_were_made(where: dict[str, str]) -> None:
    given = {"connectionString": connection_string(1), **where}
    columns = struct("sequence_number long, action string")
    sink = sink_options({**given, "operation": "settle"}, columns, streaming=False)
    source = source_options(given, streaming=True)
    assert (sink.entity, sink.consumer_id) == (source.entity, source.consumer_id)


def test_what_cannot_be_settled_is_told(bus: Bus) -> None:
    told = options(
        bus, "sequence_number long, action string", queue=bus.queue(), operation="settle"
    )
    with pytest.raises(BadAction, match="'explode' is no action; known are: complete, abandon"):
        write(told, rows(sequence_number=[1], action=["explode"]))
    with pytest.raises(BadAction, match="has no sequence_number"):
        write(told, rows(sequence_number=[None], action=["complete"]))


# --- options


@pytest.mark.parametrize(
    ("columns", "given", "problem"),
    [
        ("subject string", {"queue": "q"}, "column 'body' is needed to send"),
        ("body string", {}, "no entity: give option queue or topic, or a column 'entity'"),
        ("body string", {"queue": "q", "topic": "t"}, "a queue or a topic, not both"),
        ("body string, colour string", {"queue": "q"}, "no place for column 'colour'"),
        ("body string, subject long", {"queue": "q"}, "column subject cannot be bigint"),
        ("body string", {"queue": "q", "idColumns": "x"}, "column 'x' is needed for idColumns"),
        ("body string", {"queue": "q", "maxMessagesPerSecond": "5"}, "needs option writers"),
        ("body string", {"queue": "q", "subscription": "s"}, "nobody sends to a subscription"),
        ("body string", {"queue": "q", "writeId": "x" * 65}, "more than 64 characters"),
        ("body string", {"queue": "q", "operation": "settle"}, "'sequence_number' is needed"),
        ("body string", {"queue": "q", "consumerId": "x" * 129}, "more than 128 characters"),
        ("body string", {"queue": "q", "prefetch": "5"}, "there is no option 'prefetch'"),
        ("body string", {"queue": "q", "qeueu": "q"}, "no option 'qeueu' .did you mean queue"),
    ],
)
def test_wrong_options_are_told(columns: str, given: dict[str, str], problem: str) -> None:
    told = {"connectionString": connection_string(1), **given}
    with pytest.raises(OptionProblem, match=problem):
        sink_options(told, struct(columns), streaming=False)


def test_a_stream_takes_no_names_of_batches_and_nobody_overwrites() -> None:
    given = {"connectionString": connection_string(1), "queue": "q"}
    body = struct("body string")
    with pytest.raises(OptionProblem, match="a stream has its query's"):
        stream_writer({**given, "writeId": "mine"}, body, False)
    for make in (batch_writer, stream_writer):
        with pytest.raises(OptionProblem, match="cannot be overwritten"):
            make(given, body, True)


def test_columns_of_the_source_are_passed_by() -> None:
    given = {"connectionString": connection_string(1), "queue": "q"}
    columns = "body binary, sequence_number long, enqueued_time timestamp, delivery_count int"
    assert sink_options(given, struct(columns), streaming=True).entity == "q"
