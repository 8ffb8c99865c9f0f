"""Data directories of earlier versions: everything is still there, and goes on.

`tests/wire/directories/write.py` made them, with a broker of that version that was killed.
"""

import json
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from peeklock.amqp.values.types import Int
from peeklock.client.administration import (
    AccessRights,
    CorrelationRuleFilter,
    FalseRuleFilter,
    SqlRuleAction,
    SqlRuleFilter,
    TrueRuleFilter,
)
from peeklock.client.administration.blocking import ServiceBusAdministrationClient
from peeklock.client.blocking import ServiceBusClient, ServiceBusMessage, ServiceBusSubQueue
from peeklock.store.segments.moving import has_segments
from tests.wire.broker_process import BrokerProcess
from tests.wire.directories import contents
from tests.wire.test_stages import Writer

WITHIN_S = 20.0


class Opened:
    """A broker of today on an old directory."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.broker = broker
        text = broker.connection_string
        self.admin = ServiceBusAdministrationClient.from_connection_string(
            text, http_port=broker.http_port
        )
        self.client = ServiceBusClient.from_connection_string(text)

    def peek(self, queue: str, **options: Any) -> list[Any]:
        with self.client.get_queue_receiver(queue, **options) as receiver:
            return list(receiver.peek_messages(100))

    def texts(self, queue: str, **options: Any) -> list[str]:
        return [bytes(message).decode() for message in self.peek(queue, **options)]

    def subscribed(self, topic: str, name: str, **options: Any) -> list[Any]:
        with self.client.get_subscription_receiver(topic, name, **options) as receiver:
            return list(receiver.peek_messages(100))

    def close(self) -> None:
        self.client.close()
        self.admin.close()


# A version, and how its directory is opened: kept in LMDB, or moved to segments.
DIRECTORIES = [(contents.FIRST, "embedded"), (contents.FIRST, "segments")]


@pytest.fixture(scope="module", params=DIRECTORIES, ids="-".join)
def opened(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Opened]:
    place = tmp_path_factory.mktemp("old")
    version, store = request.param
    data = contents.unpack(version, place)
    config = place / "Config.json"
    config.write_text(json.dumps({"UserConfig": {"Namespaces": [{"Name": "sbemulatorns"}]}}))
    options = (*contents.STORES, "--store", store)
    broker = BrokerProcess(data=data, config=config, log=place / "log", options=options)
    broker.start()
    assert has_segments(data / "store") == (store == "segments")
    found = Opened(broker)
    yield found
    found.close()
    assert broker.stop() == 0


def eventually(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not holds():
        assert time.monotonic() < deadline, "it does not come about"
        time.sleep(0.05)


def test_messages_have_everything_that_they_had(opened: Opened) -> None:
    full, large, tried = opened.peek("plain")
    assert bytes(full) == b"with everything"
    assert (full.message_id, full.subject, full.content_type) == ("m-1", "greeting", "text/plain")
    assert (full.correlation_id, full.to, full.reply_to) == ("c-1", "you", "me")
    assert full.application_properties == contents.PROPERTIES
    assert (full.delivery_count, full.sequence_number) == (0, 1)
    assert (bytes(large), large.message_id) == (contents.LARGE, "large")
    assert (bytes(tried), tried.delivery_count) == (b"tried", 1)


def test_entities_are_as_they_were_chosen(opened: Opened) -> None:
    queue = opened.admin.get_queue("duplicates")
    assert queue.requires_duplicate_detection
    assert queue.duplicate_detection_history_time_window == timedelta(days=7)
    assert queue.user_metadata == "kept"
    assert queue.authorization_rules is not None
    (rule,) = queue.authorization_rules
    assert (rule.key_name, rule.rights) == ("send-only", [AccessRights.SEND])
    assert (rule.primary_key, rule.secondary_key) == ("key-that-sends", "second-key")
    assert opened.texts("duplicates") == ["once"]
    assert opened.admin.get_queue("wide").partition_count == 4


def test_sessions_have_their_order_and_their_state(opened: Opened) -> None:
    with opened.client.get_queue_receiver("sessions", session_id="a") as receiver:
        assert receiver.session.get_state() == b"half way"
        assert [bytes(m) for m in receiver.receive_messages(9, max_wait_time=2)] == [b"a1", b"a2"]
    assert opened.texts("sessions", session_id="b") == ["b0", "b1", "b2"]


def test_messages_are_where_they_were(opened: Opened) -> None:
    there = {bytes(message).decode(): message for message in opened.peek("places")}
    assert set(there) == {"deferred 1", "deferred 2", "later", "last"}
    numbers = [there[f"deferred {n}"].sequence_number for n in (1, 2)]
    with opened.client.get_queue_receiver("places") as receiver:
        deferred = receiver.receive_deferred_messages(numbers)
        assert [bytes(message) for message in deferred] == [b"deferred 1", b"deferred 2"]
        receiver.complete_messages(deferred)
    assert there["later"].scheduled_enqueue_time_utc == contents.FAR
    counts = opened.admin.get_queue_runtime_properties("places")
    assert (counts.scheduled_message_count, counts.dead_letter_message_count) == (2, 2)
    letters = {bytes(m): m for m in opened.peek("places", sub_queue=ServiceBusSubQueue.DEAD_LETTER)}
    dead, tired = letters[b"dead"], letters[b"tired"]
    assert (dead.dead_letter_reason, dead.dead_letter_error_description) == ("why", "because")
    assert tired.dead_letter_reason == "MaxDeliveryCountExceeded"


def test_topics_have_their_rules_and_copies(opened: Opened) -> None:
    rules = {
        name: [(rule.filter, rule.action) for rule in opened.admin.list_rules("news", name)]
        for name in ("all", "big", "red", "none")
    }
    assert rules == {
        "all": [(TrueRuleFilter(), None)],
        "big": [(SqlRuleFilter(contents.BIG), SqlRuleAction(contents.DOUBLED))],
        "red": [(CorrelationRuleFilter(label="red", properties={"amount": 5}), None)],
        "none": [(FalseRuleFilter(), None)],
    }
    copies = {name: opened.subscribed("news", name) for name in rules}
    amounts = {
        name: [copy.application_properties["amount"] for copy in found]
        for name, found in copies.items()
    }
    assert amounts == {"all": [5, 500, 200], "big": [1000, 400], "red": [5], "none": []}
    with opened.client.get_topic_sender("news") as sender:
        sender.send_messages(ServiceBusMessage("more", application_properties={"amount": 300}))
    assert [len(opened.subscribed("news", name)) for name in rules] == [4, 3, 1, 0]


def test_partitions_have_what_they_had(opened: Opened) -> None:
    found = opened.peek("wide")
    assert sorted(bytes(m).decode() for m in found) == contents.KEYS
    assert len({m.sequence_number >> 48 for m in found}) > 1
    for key in contents.KEYS:
        (news,) = opened.subscribed("wide-news", "all", session_id=key)
        assert bytes(news).decode() == f"news of {key}"
    key = contents.KEYS[0]
    (before,) = [m.sequence_number >> 48 for m in found if m.partition_key == key]
    with opened.client.get_queue_sender("wide") as sender:
        sender.send_messages(ServiceBusMessage("again", partition_key=key))
    (again,) = [m for m in opened.peek("wide") if bytes(m) == b"again"]
    assert again.sequence_number >> 48 == before


def test_forwarding_goes_on(opened: Opened) -> None:
    assert opened.texts("there") == ["forwarded"]
    letters = opened.texts("refused", sub_queue=ServiceBusSubQueue.DEAD_LETTER)
    assert letters == ["not taken"]


def test_what_waited_for_its_destination_arrives_there(opened: Opened) -> None:
    """A forwarded message, and the transfer of a transaction; none of the one that was open."""

    def arrived() -> list[str]:
        return sorted(text for queue in contents.DESTINATIONS for text in opened.texts(queue))

    eventually(lambda: len(arrived()) == 2)
    assert arrived() == ["on its way", "transferred"]
    for queue in ("waiting", "via"):
        assert opened.admin.get_queue_runtime_properties(queue).total_message_count == 0


def test_what_a_stage_published_is_there_once(opened: Opened) -> None:
    assert opened.texts("staged") == ["published 1", "published 2"]
    # The same batch again, as a writer sends that knows nothing of the end.
    assert Writer(opened.broker, "staged").publish(1, "one") == 0
    assert opened.texts("staged") == ["published 1", "published 2"]


def test_claims_are_their_owners_or_everybodys(opened: Opened) -> None:
    arguments = {"owner": "reader", "from-sequence-number": 0, "message-count": Int(10)}
    listed = opened.client.manage("claimed", "com.peeklock:list-claims", arguments)
    # A claim ends by itself after a day, and then the messages are as before.
    assert len(listed["sequence-numbers"].items) in (0, 2)
    assert sorted(opened.texts("claimed")) == ["claimed 1", "claimed 2", "free"]


def test_the_archive_is_small(opened: Opened) -> None:
    sizes = [path.stat().st_size for path in Path(contents.FOLDER).glob("*.tar.xz")]
    assert sum(sizes) < 1 << 20
