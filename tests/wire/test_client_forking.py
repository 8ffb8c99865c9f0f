"""Our own client in processes that fork, as Spark's workers do."""

import os
import subprocess
import sys

from tests.wire.broker_process import BrokerProcess

FORKING = """
import os, sys
from peeklock.amqp.values.types import Int
from peeklock.client.blocking_loop import BlockingLoop, PerProcess
from peeklock.client.connections.config import ClientConfig
connections = PerProcess(ClientConfig.from_connection_string(sys.argv[1]))
asked = (sys.argv[2], "com.microsoft:peek-message",
         {"from-sequence-number": 1, "message-count": Int(1)})
run = lambda coroutine: BlockingLoop.of_this_process().run(coroutine)
ask = lambda: run(connections.get().manage(*asked))
close = lambda: run(connections.take().close())
assert ask() == {}
for _ in range(3):
    child = os.fork()
    if child == 0:
        assert ask() == {}
        close()
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
assert ask() == {}
close()
print("all well")
"""


def test_a_forked_child_has_a_connection_of_its_own(broker: BrokerProcess, queue: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORKING, broker.connection_string, queue],
        env={**os.environ},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.stdout, done.stderr) == ("all well\n", "")
