"""A generic AMQP 1.0 client, Qpid Proton, which knows nothing of Service Bus: it shows a key with
PLAIN, and has transactions."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from tests.wire.entities import ROOT_KEY, ROOT_RULE

proton = pytest.importorskip(
    "proton", reason="python-qpid-proton is not installed: `make setup` could not build it"
)
handlers = pytest.importorskip("proton.handlers")
reactor = pytest.importorskip("proton.reactor")
utils = pytest.importorskip("proton.utils")

TIMEOUT_S: Final = 15.0
COMMITTED: Final = "committed"
ROLLED_BACK: Final = "rolled back"


class Generic:
    """One connection; all its links are on one AMQP session."""

    def __init__(
        self,
        port: int,
        *,
        rule: str = ROOT_RULE,
        key: str = ROOT_KEY,
        authority: Path | None = None,
    ) -> None:
        """With an authority to trust it uses TLS."""
        self.connection: Any = utils.BlockingConnection(
            f"{'amqp' if authority is None else 'amqps'}://localhost:{port}",
            timeout=TIMEOUT_S,
            user=rule,
            password=key,
            allowed_mechs="PLAIN",
            # Without TLS, as nearly everything in these tests.
            allow_insecure_mechs=authority is None,
            ssl_domain=None if authority is None else _trusting(authority),
        )

    def __enter__(self) -> Generic:
        return self

    def __exit__(self, *error: object) -> None:
        self.connection.close()

    def send(self, queue: str, *texts: str) -> None:
        sender = self.connection.create_sender(queue)
        for text in texts:
            sender.send(message(text))
        sender.close()

    def sender(self, queue: str, *, destination: str | None = None) -> Any:
        """A sender, by way of the queue to another one if that is named."""
        options = None if destination is None else _SendVia(destination)
        return self.connection.create_sender(queue, options=options)

    def receiver(self, queue: str) -> Receiver:
        return Receiver(self, queue)

    def declare(self) -> Transaction:
        return Transaction(self)

    def drop(self) -> None:
        """Lose the connection without a word."""
        transport = self.connection.conn.transport
        transport.close_tail()
        transport.close_head()


class Receiver:
    """A receiver that hands out deliveries, because transactions settle those."""

    def __init__(self, client: Generic, queue: str) -> None:
        self._client = client
        self._blocking: Any = client.connection.create_receiver(queue, credit=0)

    def receive(self, timeout_s: float = TIMEOUT_S) -> tuple[str, Any]:
        """One message: its text and its delivery."""
        received = self._blocking.receive(timeout=timeout_s)
        return bytes(received.body).decode(), self._blocking.fetcher.unsettled.pop()

    def settle(self, delivery: Any, state: int) -> int:
        """Tell an outcome and wait for the answer."""
        delivery.update(state)
        self._client.connection.wait(lambda: delivery.settled)
        delivery.settle()
        return int(delivery.remote_state)


class Transaction:
    """A transaction whose every step is waited for."""

    def __init__(self, client: Generic, *, settles_at_once: bool = False) -> None:
        self._wait: Any = client.connection.wait
        self._events = _Events()
        connection = client.connection
        self._transaction: Any = connection.container.declare_transaction(
            connection.conn, handler=self._events, settle_before_discharge=settles_at_once
        )
        assert self._next() == "declared"

    def send(self, sender: Any, sent: Any) -> int:
        """Send a text or a message, and give the outcome: a plain one is a refusal."""
        written = message(sent) if isinstance(sent, str) else sent
        delivery = self._transaction.send(sender.link, written)
        self._wait(lambda: delivery.settled)
        delivery.settle()
        return int(delivery.remote_state)

    def accept(self, delivery: Any) -> int:
        """Complete a message, and give the answer."""
        self._transaction.accept(delivery)
        self._wait(lambda: delivery.settled)
        return int(delivery.remote_state)

    def commit(self) -> str:
        self._transaction.commit()
        return self._next()

    def roll_back(self) -> str:
        self._transaction.abort()
        return self._next()

    def _next(self) -> str:
        self._wait(lambda: bool(self._events.seen))
        return self._events.seen.pop(0)


class _SendVia(reactor.SenderOption):  # type: ignore[misc, name-defined] # the client is optional
    def __init__(self, destination: str) -> None:
        super().__init__()
        self._destination = destination

    def apply(self, link: Any) -> None:
        name = proton.symbol("com.microsoft:transfer-destination-address")
        link.properties = {name: self._destination}


class _Events(handlers.TransactionHandler):  # type: ignore[misc, name-defined] # the client is optional
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def on_transaction_declared(self, event: Any) -> None:
        self.seen.append("declared")

    def on_transaction_committed(self, event: Any) -> None:
        self.seen.append(COMMITTED)

    def on_transaction_aborted(self, event: Any) -> None:
        self.seen.append(ROLLED_BACK)

    def on_transaction_declare_failed(self, event: Any) -> None:
        self.seen.append(_condition(event))

    def on_transaction_commit_failed(self, event: Any) -> None:
        self.seen.append(_condition(event))


def _trusting(authority: Path) -> Any:
    domain = proton.SSLDomain(proton.SSLDomain.MODE_CLIENT)
    domain.set_trusted_ca_db(str(authority))
    domain.set_peer_authentication(proton.SSLDomain.VERIFY_PEER_NAME, str(authority))
    return domain


def _condition(event: Any) -> str:
    return str(event.delivery.remote.condition.name)


def message(text: str, key: str | None = "k", session: str | None = None) -> Any:
    """A message with a partition key, so that a partitioned queue takes several as one; or with
    another one, or none, or in a session."""
    name = proton.symbol("x-opt-partition-key")
    annotations = None if key is None or session is not None else {name: key}
    return proton.Message(
        body=text.encode(), inferred=True, annotations=annotations, group_id=session
    )
