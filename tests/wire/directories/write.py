"""Writes a data directory with a broker of an earlier version, and packs it:

    python -m tests.wire.directories.write VERSION CHECKOUT

CHECKOUT is a working copy of that version. The directory is that of a killed broker, with a few
messages of every kind; `tests/wire/test_directories.py` opens it and looks for all of them.
"""

import shutil
import sys
import tarfile
import tempfile
import time
from datetime import timedelta
from pathlib import Path

from peeklock.amqp.values.types import Int
from peeklock.client.administration import (
    AuthorizationRule,
    CorrelationRuleFilter,
    EntityAvailabilityStatus,
    EntityStatus,
    FalseRuleFilter,
    RuleProperties,
    SqlRuleAction,
    SqlRuleFilter,
)
from peeklock.client.administration.blocking import ServiceBusAdministrationClient
from peeklock.client.administration.http_client import HttpClient, http_endpoint
from peeklock.client.blocking import ServiceBusClient, ServiceBusMessage, ServiceBusSubQueue
from tests.wire.broker_process import BrokerProcess
from tests.wire.directories.contents import (
    BIG,
    DESTINATIONS,
    DOUBLED,
    FAR,
    KEYS,
    LARGE,
    PROPERTIES,
    STORES,
    archive,
)
from tests.wire.generic import COMMITTED, Generic
from tests.wire.test_stages import Writer

WITHIN_S = 20.0
CONFIG = '{"UserConfig": {"Namespaces": [{"Name": "sbemulatorns", "Queues": [{"Name": "plain"}]}]}}'


def main(version: str, checkout: Path) -> None:
    """Write the directory of a version."""
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        config = place / "Config.json"
        config.write_text(CONFIG)
        path = f"PYTHONPATH={checkout.resolve() / 'src'}"
        broker = BrokerProcess(
            data=place / "data",
            config=config,
            log=place / "log",
            options=STORES,
            program=("env", path, sys.executable, "-m", "peeklock"),
        )
        broker.start()
        try:
            fill(broker)
        finally:
            broker.kill()
        pack(place / "data", archive(version))


def pack(data: Path, packed: Path) -> None:
    """Pack a directory without what is made again: locks, certificates and their keys."""
    shutil.rmtree(data / "tls", ignore_errors=True)
    for lock in [*data.rglob("lock.mdb"), *data.rglob("owner.lock")]:
        lock.unlink()
    with tarfile.open(packed, "w:xz") as archive:
        archive.add(data, "data", filter=_of_nobody)


def _of_nobody(found: tarfile.TarInfo) -> tarfile.TarInfo:
    found.uid = found.gid = 0
    found.uname = found.gname = ""
    return found


def fill(broker: BrokerProcess) -> None:
    """Make entities of every kind and put messages into them."""
    with (
        ServiceBusAdministrationClient.from_connection_string(
            broker.connection_string, http_port=broker.http_port
        ) as admin,
        ServiceBusClient.from_connection_string(broker.connection_string) as client,
    ):
        fill_queues(admin, client)
        fill_sessions(admin, client)
        fill_places(admin, client)
        fill_topics(admin, client)
        fill_partitioned(admin, client)
        fill_forwarding(admin, client)
        fill_stages(broker, admin)
        fill_claims(admin, client)
        fill_waiting(broker, admin, client)


def send(client: ServiceBusClient, queue: str, *messages: ServiceBusMessage | str) -> None:
    """Send one after the other."""
    with client.get_queue_sender(queue) as sender:
        for message in messages:
            made = ServiceBusMessage(message) if isinstance(message, str) else message
            sender.send_messages(made)


def fill_queues(admin: ServiceBusAdministrationClient, client: ServiceBusClient) -> None:
    """Messages with everything that they can have, a large one, and one that was tried before."""
    full = ServiceBusMessage(
        "with everything",
        message_id="m-1",
        subject="greeting",
        content_type="text/plain",
        correlation_id="c-1",
        to="you",
        reply_to="me",
        application_properties=PROPERTIES,
    )
    send(client, "plain", full, ServiceBusMessage(LARGE, message_id="large"), "tried")
    with client.get_queue_receiver("plain", max_wait_time=5) as receiver:
        for message in receiver.receive_messages(3, max_wait_time=5):
            if bytes(message) == b"tried":
                receiver.abandon_message(message)
            else:
                receiver.release_messages([message])
    rule = AuthorizationRule("send-only", ["Send"], "key-that-sends", "second-key")
    admin.create_queue(
        "duplicates",
        requires_duplicate_detection=True,
        duplicate_detection_history_time_window=timedelta(days=7),
        authorization_rules=[rule],
        user_metadata="kept",
    )
    once = ServiceBusMessage("once", message_id="once")
    send(client, "duplicates", once, once)


def fill_sessions(admin: ServiceBusAdministrationClient, client: ServiceBusClient) -> None:
    """Two sessions with messages, one of them with a state."""
    admin.create_queue("sessions", requires_session=True)
    made = [ServiceBusMessage(f"{name}{n}", session_id=name) for n in range(3) for name in "ab"]
    send(client, "sessions", *made)
    with client.get_queue_receiver("sessions", session_id="a") as receiver:
        receiver.session.set_state("half way")
        (first,) = receiver.receive_messages(1, max_wait_time=5)
        receiver.complete_message(first)


def fill_places(admin: ServiceBusAdministrationClient, client: ServiceBusClient) -> None:
    """Deferred and scheduled messages, and dead letters of two kinds."""
    admin.create_queue("places", max_delivery_count=2)
    send(client, "places", "deferred 1", "deferred 2", "dead", "tired")
    with client.get_queue_receiver("places", max_wait_time=5) as receiver:
        for message in receiver.receive_messages(4, max_wait_time=5):
            text = bytes(message).decode()
            if text.startswith("deferred"):
                receiver.defer_message(message)
            elif text == "dead":
                receiver.dead_letter_message(message, reason="why", error_description="because")
            else:
                receiver.abandon_message(message)
        (tired,) = receiver.receive_messages(1, max_wait_time=5)
        receiver.abandon_message(tired)
    with client.get_queue_sender("places") as sender:
        sender.schedule_messages([ServiceBusMessage("later"), ServiceBusMessage("last")], FAR)
    letters = client.get_queue_receiver("places", sub_queue=ServiceBusSubQueue.DEAD_LETTER)
    with letters as receiver:
        waited(lambda: len(receiver.peek_messages(10)) == 2)


def fill_topics(admin: ServiceBusAdministrationClient, client: ServiceBusClient) -> None:
    """A topic whose subscriptions take everything, some with a change, some by value, nothing."""
    admin.create_topic("news")
    admin.create_subscription("news", "all")
    big = RuleProperties("big", SqlRuleFilter(BIG), SqlRuleAction(DOUBLED))
    admin.create_subscription("news", "big", default_rule=big)
    red = RuleProperties("red", CorrelationRuleFilter(label="red", properties={"amount": 5}))
    admin.create_subscription("news", "red", default_rule=red)
    admin.create_subscription("news", "none", default_rule=RuleProperties("no", FalseRuleFilter()))
    with client.get_topic_sender("news") as sender:
        for amount, label in ((5, "red"), (500, "red"), (200, "blue")):
            text, properties = f"{label} {amount}", {"amount": amount}
            sender.send_messages(
                ServiceBusMessage(text, subject=label, application_properties=properties)
            )


def fill_partitioned(admin: ServiceBusAdministrationClient, client: ServiceBusClient) -> None:
    """A queue and a topic of four partitions, over two stores."""
    admin.create_queue("wide", enable_partitioning=True, partition_count=4)
    send(client, "wide", *(ServiceBusMessage(key, partition_key=key) for key in KEYS))
    admin.create_topic("wide-news", enable_partitioning=True, partition_count=4)
    admin.create_subscription("wide-news", "all", requires_session=True)
    with client.get_topic_sender("wide-news") as sender:
        for key in KEYS:
            sender.send_messages(ServiceBusMessage(f"news of {key}", session_id=key))


def fill_forwarding(admin: ServiceBusAdministrationClient, client: ServiceBusClient) -> None:
    """A message that was forwarded, and one that its destination did not take."""
    admin.create_queue("there")
    admin.create_queue("here", forward_to="there")
    send(client, "here", "forwarded")
    with client.get_queue_receiver("there") as receiver:
        waited(lambda: len(receiver.peek_messages(1)) == 1)
    admin.create_queue("closed")
    admin.create_queue("refused", forward_to="closed")
    admin.update_queue({"name": "closed"}, status=EntityStatus.DISABLED)
    send(client, "refused", "not taken")
    waited(lambda: admin.get_queue_runtime_properties("refused").dead_letter_message_count == 1)


def fill_waiting(
    broker: BrokerProcess, admin: ServiceBusAdministrationClient, client: ServiceBusClient
) -> None:
    """What waits for a destination whose store is away: a forwarded message, and the transfer of a
    transaction; and a transaction that was never committed."""
    for name in DESTINATIONS:
        admin.create_queue(name)
    http = HttpClient(http_endpoint(broker.connection_string, broker.http_port))
    assert http.request("POST", "/$stores/store-2/offline").status == 200
    http.close()
    away = [name for name in DESTINATIONS if not is_available(admin, name)]
    # With one store left, both rest there.
    admin.create_queue("waiting", forward_to=away[0])
    send(client, "waiting", "on its way")
    admin.create_queue("via")
    with Generic(broker.amqp_port) as generic:
        sender = generic.sender("via", destination=away[0])
        transaction = generic.declare()
        transaction.send(sender, "transferred")
        assert transaction.commit() == COMMITTED
        pending = generic.declare()
        pending.send(sender, "never committed")


def is_available(admin: ServiceBusAdministrationClient, queue: str) -> bool:
    """Tell whether a queue can be used now."""
    status = admin.get_queue(queue).availability_status
    return status is EntityAvailabilityStatus.AVAILABLE


def fill_stages(broker: BrokerProcess, admin: ServiceBusAdministrationClient) -> None:
    """Messages that were published from a stage."""
    admin.create_queue("staged")
    writer = Writer(broker, "staged")
    writer.stage("one", "published 1", "published 2")
    assert writer.publish(1, "one") == 2
    writer.stage("two", "not published")


def fill_claims(admin: ServiceBusAdministrationClient, client: ServiceBusClient) -> None:
    """Messages that a reader has claimed, beside one that nobody has."""
    admin.create_queue("claimed")
    send(client, "claimed", "claimed 1", "claimed 2", "free")
    arguments = {"owner": "reader", "epoch": 1, "message-count": Int(2)}
    client.manage("claimed", "com.peeklock:claim-messages", arguments)


def waited(holds: object) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + WITHIN_S
    assert callable(holds)
    while not holds():
        assert time.monotonic() < deadline, "it does not come about"
        time.sleep(0.05)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
