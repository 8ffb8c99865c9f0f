"""The servers that are measured side by side: both forms of Peeklock, and RabbitMQ."""

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

    They run side by side so that rounds can be interleaved: what disturbs the machine disturbs
    each of them alike. Those that are not measured at the moment do nothing.
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
