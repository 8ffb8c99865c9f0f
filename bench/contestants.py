"""The servers that are measured side by side: both forms of Peeklock, and RabbitMQ."""

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from bench import rabbitmq_server
from bench.peeklock_server import Peeklock
from bench.plan import Plan
from bench.rabbitmq_server import RabbitMq

COMPILED = "Peeklock compiled"
PLAIN = "Peeklock plain"
RABBITMQ = "RabbitMQ"

Contestants = dict[str, Peeklock | RabbitMq]


@contextmanager
def contestants(plan: Plan) -> Iterator[Contestants]:
    """Start them all, say their versions, and end them all.

    They live side by side so that rounds can be interleaved: what disturbs the machine disturbs
    each of them alike. `alone` keeps them out of each other's way.
    """
    with ExitStack() as stack:
        found: Contestants = {}
        for form in ("compiled", "plain"):
            server = Peeklock(plan.directory / form, form)
            found[server.name] = stack.enter_context(server)
            print(f"{server.name}: {server.version()}")
        if plan.with_rabbitmq:
            rabbitmq_server.install()
            rival = stack.enter_context(RabbitMq(plan.directory / "rabbitmq"))
            found[RABBITMQ] = rival
            print(
                f"{RABBITMQ}: {rabbitmq_server.version()}, plug-in rabbitmq_amqp1_0, durable queue"
            )
        yield found


@contextmanager
def alone(servers: Contestants, name: str) -> Iterator[Peeklock | RabbitMq]:
    """Give one server while the others are stopped, and with the disk at rest: a virtual machine
    that spins a while before it sleeps, and pages that are still to be written, take their share
    of two cores."""
    others = [server.endpoint.pid for each, server in servers.items() if each != name]
    for pid in others:
        os.kill(pid, signal.SIGSTOP)
    try:
        os.sync()
        yield servers[name]
    finally:
        for pid in others:
            os.kill(pid, signal.SIGCONT)
