"""The official JavaScript client: each file of js/ is one test here."""

import json
import os
import subprocess

import pytest

from tests.wire.broker_process import BrokerProcess
from tests.wire.entities import Queues
from tests.wire.javascript import JAVASCRIPT, node

FILES = sorted(path.name for path in JAVASCRIPT.glob("*.test.mjs"))
# kind -> how many queues one file gets.
QUEUES_PER_FILE = {
    "plain": 20,
    "short-lock": 6,
    "short-lock-two-deliveries": 1,
    "dead-letter-on-expiry": 1,
    "own-rules": 2,
}
# What a file needs that is about something else than plain queues.
OTHERS = {
    "administration.test.mjs": {},
    "sessions.test.mjs": QUEUES_PER_FILE | {"session": 14, "short-lock-session": 4},
    "topics.test.mjs": {
        "topic": 12,
        "partitioned-topic": 2,
        "filters": 1,
        "choosy-topic": 1,
        "changing-topic": 1,
        "failing-topic": 1,
        "deserted-topic": 1,
        "trying-topic": 1,
        "session-topic": 2,
        "dedup": 1,
        "relay": 1,
        "relay-dead": 1,
        "topic-statuses": 1,
        "small": 1,
    },
}
WITHIN_S = 110
pytestmark = pytest.mark.side_by_side


@pytest.mark.parametrize("file", FILES)
def test_javascript(broker: BrokerProcess, queues: Queues, file: str) -> None:
    """R-T1 to R-T5, R-S1 to R-S9, R-L1 to R-L3: each test names its own."""
    wanted = OTHERS.get(file, QUEUES_PER_FILE)
    pools = {kind: queues.take_many(kind, count) for kind, count in wanted.items()}
    environment = os.environ | {
        "PEEKLOCK_CONNECTION": broker.connection_string,
        "PEEKLOCK_PORT": str(broker.amqp_port),
        "PEEKLOCK_HTTP_PORT": str(broker.http_port),
        # The administration client insists on TLS.
        "NODE_EXTRA_CA_CERTS": str(broker.authority),
        "PEEKLOCK_QUEUES": json.dumps(pools),
    }
    done = subprocess.run(
        [node(), "--test", "--test-reporter=tap", file],
        cwd=JAVASCRIPT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
