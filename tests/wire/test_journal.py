"""The journal over HTTP: what clients did, told to whom it may be told (R-D4, R-D5).

The official client sends and receives; the reader is the one of the Spark source.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusReceiveMode

from peeklock.amqp.values.constructors import UUID_CODE
from peeklock.amqp.values.types import Array
from peeklock.client import blocking
from peeklock.client.exceptions import MessageLockLostError
from peeklock.spark.journal.client import JournalClient, JournalGone, JournalUnavailable
from peeklock.spark.journal.decoder import FactDecoder
from tests.wire import sas
from tests.wire.broker_process import BrokerProcess
from tests.wire.clients import Bus, number, receive, receive_one
from tests.wire.entities import LOCK_SHORT_S, PARTITIONED, QUEUE_RULES, Queues
from tests.wire.rest import RestClient

# The notes of a quiet queue are written after a second.
WRITTEN_WITHIN_S = 10.0


@pytest.fixture
def journal(broker: BrokerProcess) -> Iterator[JournalClient]:
    with JournalClient(broker.connection_string, http_port=broker.http_port) as client:
        yield client


@pytest.fixture
def rest(broker: BrokerProcess) -> Iterator[RestClient]:
    client = RestClient(broker.http_port)
    yield client
    client.close()


def facts(client: JournalClient, entity: str, limit_bytes: int = 1 << 20) -> list[dict[str, Any]]:
    """All that is in the journal, partition by partition."""
    described = client.describe(entity)
    rows: list[dict[str, Any]] = []
    for partition in described.partitions:
        decoder = FactDecoder(described.entity, partition.index, described.lanes, include_body=True)
        position = partition.first
        while position < partition.next:
            page = client.page(entity, partition.index, position, limit_bytes)
            for chunk in page.chunks:
                decoder.add(chunk, position, partition.next)
            position = page.next
        rows += decoder.take().to_pylist()
    return rows


def when(
    client: JournalClient, entity: str, is_told: Callable[[list[dict[str, Any]]], bool]
) -> list[dict[str, Any]]:
    """The facts, as soon as they tell something."""
    give_up_at = time.monotonic() + WRITTEN_WITHIN_S
    while not is_told(rows := facts(client, entity)):
        assert time.monotonic() < give_up_at, f"only {[row['op'] for row in rows]} is told"
        time.sleep(0.1)
    return rows


def ops(rows: list[dict[str, Any]], sequence: int) -> list[str]:
    return [row["op"] for row in rows if row["sequence_number"] == sequence]


@pytest.mark.smoke
def test_the_life_of_messages_is_told(bus: Bus, journal: JournalClient, queue: str) -> None:
    started_at = time.time()
    bus.send(queue, *(ServiceBusMessage(f"m{n}", message_id=f"id-{n}") for n in range(3)))
    with bus.receiver(queue) as receiver:
        done, failed, dead = receive(receiver, 3)
        receiver.renew_message_lock(done)
        receiver.complete_message(done)
        receiver.abandon_message(failed)
        receiver.dead_letter_message(dead, reason="bad", error_description="very bad")
        again = receive_one(receiver)
        receiver.complete_message(again)
    rows = when(journal, queue, lambda rows: ops(rows, number(again))[-1:] == ["complete"])
    assert ops(rows, number(done)) == ["send", "deliver", "renew", "complete"]
    assert ops(rows, number(dead)) == ["send", "deliver", "deadletter"]
    assert ops(rows, number(failed)) == ["send", "deliver", "abandon", "deliver", "complete"]
    told = [row for row in rows if row["sequence_number"] == number(failed)]
    assert [row["delivery_count"] for row in told] == [None, 0, 1, 1, None]
    sent = [row for row in rows if row["op"] == "send"]
    assert {row["message_id"] for row in sent} == {"id-0", "id-1", "id-2"}
    assert all(row["bytes"] > 0 and b"m" in row["body"] for row in sent)
    consumers = {row["consumer"] for row in rows if row["op"] in ("deliver", "renew")}
    assert len(consumers) == 1
    assert "/" in consumers.pop()
    (buried,) = [row for row in rows if row["op"] == "deadletter"]
    assert (buried["reason"], buried["description"]) == ("bad", "very bad")
    assert buried["destination"] == "$DeadLetterQueue"
    assert all(started_at - 1 < row["at"].timestamp() < time.time() + 1 for row in rows)
    assert {row["entity"] for row in rows} == {queue}


def test_a_delivery_is_told_while_nothing_else_happens(
    bus: Bus, journal: JournalClient, queue: str
) -> None:
    bus.send(queue, ServiceBusMessage("m"))
    with bus.receiver(queue) as receiver:
        receive_one(receiver)
        rows = when(journal, queue, lambda rows: any(row["op"] == "deliver" for row in rows))
    (sent,) = [row for row in rows if row["op"] == "send"]
    (delivered,) = [row for row in rows if row["op"] == "deliver"]
    assert sent["at"] <= delivered["at"]


def test_what_is_received_and_deleted_is_told(bus: Bus, journal: JournalClient, queue: str) -> None:
    bus.send(queue, ServiceBusMessage("m"))
    with bus.receiver(queue, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE) as receiver:
        got = receive_one(receiver)
    rows = when(journal, queue, lambda rows: ops(rows, number(got))[-1:] == ["receive_delete"])
    assert ops(rows, number(got)) == ["send", "deliver", "receive_delete"]


def test_a_settlement_by_request_that_comes_too_late_names_who_asked(
    bus: Bus, journal: JournalClient, queue: str
) -> None:
    bus.send(queue, ServiceBusMessage("m"))
    with bus.receiver(queue) as receiver:
        got = receive_one(receiver)
        token = got.lock_token
        receiver.complete_message(got)
    settle = {"disposition-status": "completed", "lock-tokens": Array(UUID_CODE, [token])}
    with (
        blocking.ServiceBusClient.from_connection_string(bus.connection_string) as asking,
        pytest.raises(MessageLockLostError),
    ):
        asking.manage(queue, "com.microsoft:update-disposition", settle)
    rows = when(journal, queue, lambda rows: any(row["op"] == "settle_fail" for row in rows))
    (failed,) = [row for row in rows if row["op"] == "settle_fail"]
    assert (failed["sequence_number"], failed["reason"]) == (number(got), "complete")
    assert "/" in failed["consumer"]


def test_a_settlement_that_comes_too_late_is_told(
    rest: RestClient, journal: JournalClient, queues: Queues
) -> None:
    """The official client looks at its own clock and does not even ask: this one does."""
    queue = queues.take("short-lock")
    rest.send(queue, b"m")
    late = rest.lock(queue)
    time.sleep(LOCK_SHORT_S + 1)
    assert rest.ask("DELETE", late.place).status == 410
    rows = when(journal, queue, lambda rows: any(row["op"] == "settle_fail" for row in rows))
    (failed,) = [row for row in rows if row["op"] == "settle_fail"]
    sequence = late.properties["SequenceNumber"]
    assert (failed["sequence_number"], failed["reason"]) == (sequence, "complete")
    assert failed["consumer"] == "$http"
    assert ops(rows, sequence) == ["send", "deliver", "lock_lost", "settle_fail"]


def test_subscriptions_are_told_apart(bus: Bus, journal: JournalClient, queues: Queues) -> None:
    topic = queues.take("partitioned-topic")
    bus.publish(topic, ServiceBusMessage("m", message_id="one"))
    described = journal.describe(topic)
    names = {name for lane, name in described.lanes.items() if lane >= 4 and not lane & 1}
    assert names
    rows = facts(journal, topic)
    assert {row["sub_entity"] for row in rows if row["op"] == "send"} == names
    assert {row["message_id"] for row in rows if row["op"] == "send"} == {"one"}


def test_small_pages_tell_the_same(bus: Bus, journal: JournalClient, queue: str) -> None:
    for turn in range(5):
        bus.send(queue, *(ServiceBusMessage(f"{turn}-{n}" * 50) for n in range(20)))
    whole = facts(journal, queue)
    assert len([row for row in whole if row["op"] == "send"]) == 100
    assert facts(journal, queue, 1) == whole
    assert facts(journal, queue, 3000) == whole


def test_a_reader_goes_on_where_it_was(bus: Bus, journal: JournalClient, queue: str) -> None:
    bus.send(queue, ServiceBusMessage("one"))
    before = {each.index: each.next for each in journal.describe(queue).partitions}
    assert all(not journal.page(queue, index, at).chunks for index, at in before.items())
    bus.send(queue, ServiceBusMessage("two", message_id="two"))
    told: list[Any] = []
    for index, at in before.items():
        decoder = FactDecoder(queue, index, {})
        page = journal.page(queue, index, at)
        for chunk in page.chunks:
            decoder.add(chunk, at)
        told += decoder.take().column("message_id").to_pylist()
    assert [each for each in told if each] == ["two"]
    # Who has read more than there is learns where it ends.
    index, _ = next(iter(before.items()))
    beyond = journal.page(queue, index, 1 << 50)
    assert beyond.next == journal.describe(queue).partitions[index].next
    assert not beyond.chunks


def test_a_partition_for_each_of_the_queue(journal: JournalClient, queue: str) -> None:
    described = journal.describe(queue)
    assert (len(described.partitions) > 1) == PARTITIONED
    assert all(partition.is_available for partition in described.partitions)
    assert described.lanes == {
        0: "",
        1: "$DeadLetterQueue",
        2: "$Transfer",
        3: "$Transfer/$DeadLetterQueue",
    }


@pytest.mark.plain_only(reason="what is refused does not depend on partitions")
def test_only_who_may_receive_may_read(broker: BrokerProcess, queues: Queues) -> None:
    queue = queues.take("own-rules")
    for rule, status in ((QUEUE_RULES[0], 403), (QUEUE_RULES[1], 200)):
        client = RestClient(broker.http_port, rule=rule["Name"], key=rule["PrimaryKey"])
        own = {"Authorization": _signed(broker, f"{queue}", rule)}
        for path in (f"/{queue}/$journal", f"/{queue}/$journal/0"):
            assert client.ask("GET", path, headers=own).status == status
        assert client.ask("GET", "/plain-001/$journal", headers=own).status == 401
        client.close()
    unauthorized = RestClient(broker.http_port, key="wrong")
    refused = unauthorized.ask("GET", f"/{queue}/$journal")
    assert refused.status == 401
    assert b"TrackingId" in refused.body
    # Who may not come in does not learn what there is.
    assert unauthorized.ask("GET", "/nowhere/$journal").status == 401
    unauthorized.close()


def _signed(broker: BrokerProcess, path: str, rule: dict[str, Any]) -> str:
    resource = f"http://localhost:{broker.http_port}/{path}"
    return sas.token(resource, rule=rule["Name"], key=rule["PrimaryKey"])


@pytest.mark.plain_only(reason="what is refused does not depend on partitions")
def test_what_is_wrong_is_said(rest: RestClient, queue: str) -> None:
    for path, status in (
        ("/nowhere/$journal", 404),
        (f"/{queue}/$DeadLetterQueue/$journal", 404),
        (f"/{queue}/$journal/1", 404),
        (f"/{queue}/$journal/x", 404),
        (f"/{queue}/$journal/-1", 404),
        (f"/{queue}/$journal/0?after=-1", 400),
        (f"/{queue}/$journal/0?after=x", 400),
        (f"/{queue}/$journal/0?after=99999999999999999999", 400),
        (f"/{queue}/$journal/0?limit=0", 400),
        (f"/{queue}/$journal/0?limit=many", 400),
        (f"/{queue}/$journal/0?limit=999999999999", 200),
        (f"/{queue.upper()}/%24Journal/0", 200),
    ):
        answer = rest.ask("GET", path)
        assert answer.status == status, path
        assert status == 200 or b"error" in answer.body
    for method in ("POST", "DELETE"):
        answer = rest.ask(method, f"/{queue}/$journal")
        assert (answer.status, answer.headers["Allow"]) == (405, "GET, HEAD")


@pytest.mark.plain_only(reason="a restart is the same for one partition and for many")
def test_the_journal_outlives_the_broker(own_broker: BrokerProcess, own_bus: Bus) -> None:
    own_bus.send("plain-001", ServiceBusMessage("m", message_id="kept"))
    with JournalClient(own_broker.connection_string, http_port=own_broker.http_port) as client:
        before = facts(client, "plain-001")
        incarnation = client.describe("plain-001").incarnation
        own_broker.kill()
        own_broker.start()
        own_broker_port = own_broker.http_port
    with JournalClient(own_broker.connection_string, http_port=own_broker_port) as client:
        assert facts(client, "plain-001")[: len(before)] == before
        assert client.describe("plain-001").incarnation == incarnation


@pytest.mark.plain_only(reason="a name is given again in the same way to one partition and to many")
def test_another_entity_of_the_same_name_has_another_journal(
    broker: BrokerProcess, rest: RestClient, bus: Bus, journal: JournalClient, queue: str
) -> None:
    bus.send(queue, ServiceBusMessage("m"))
    before = journal.describe(queue)
    assert rest.ask("DELETE", f"/{queue}?api-version=2021-05").status == 200
    with pytest.raises(JournalGone, match="no queue or topic"):
        journal.describe(queue)
    entry = (
        '<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml">'
        '<QueueDescription xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/'
        'connect"/></content></entry>'
    )
    headers = {"Content-Type": "application/atom+xml"}
    made = rest.ask("PUT", f"/{queue}?api-version=2021-05", entry, headers)
    assert made.status == 201, made.body
    after = journal.describe(queue)
    assert after.incarnation != before.incarnation
    assert [each.next for each in after.partitions] == [0]


@pytest.mark.plain_only(reason="these stores hold a quarter of a partitioned queue each")
def test_a_store_that_is_away_is_waited_for(
    start_broker: Callable[..., BrokerProcess],
) -> None:
    process = start_broker(counts={"partitioned": 1}, stores=4)
    process.start()
    rest = RestClient(process.http_port)
    queue = "partitioned-001"
    assert rest.ask("POST", "/$stores/store-2/offline").status == 200
    reader = JournalClient(process.connection_string, http_port=process.http_port, deadline_s=1.0)
    with reader as client:
        described = client.describe(queue)
        away = [each.index for each in described.partitions if not each.is_available]
        assert len(away) == len(described.partitions) // 4
        answer = rest.ask("GET", f"/{queue}/$journal/{away[0]}")
        assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
        with pytest.raises(JournalUnavailable, match="out of reach"):
            client.page(queue, away[0], 0)
        assert rest.ask("POST", "/$stores/store-2/online").status == 200
        assert client.page(queue, away[0], 0).next == 0
        assert all(each.is_available for each in client.describe(queue).partitions)
    rest.close()
