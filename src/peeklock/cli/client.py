"""A small blocking client on our own engine: one connection, one session, what commands need."""

import contextlib
import socket
import time
from collections.abc import Callable
from typing import Any, Final, final

from peeklock.amqp.composites import (
    ACCEPTED,
    RELEASED,
    Accepted,
    Properties,
    Source,
    Target,
    decode_composite,
)
from peeklock.amqp.connection import CLIENT, Connection
from peeklock.amqp.delivery import IncomingDelivery
from peeklock.amqp.errors import AmqpError
from peeklock.amqp.events import (
    AnswersReceived,
    AttachAnswered,
    Closed,
    Event,
    LinkDetached,
    SessionEnded,
    SettlementsReceived,
    TransfersReceived,
)
from peeklock.amqp.limits import Limits
from peeklock.amqp.link import Link
from peeklock.amqp.message import VALUE_BODY, Message, decode_message, encode_message
from peeklock.amqp.sasl import anonymous
from peeklock.amqp.types import Symbol, Uint
from peeklock.cli.connection import ConnectionProblem
from peeklock.cli.reach import Reach

ANSWERED_WITHIN_S: Final = 60.0
NEXT_SESSION: Final = ""
_READ_SIZE: Final = 1 << 18
_MESSAGE_SIZE_MAX: Final = 128 << 20
_TIMEOUT: Final = "com.microsoft:timeout"

# Settle modes [2.8.2, 2.8.3]: the sender settles at once or not at all, the receiver after it.
_UNSETTLED: Final = 0
_SETTLED: Final = 1
_FIRST: Final = 0
_SECOND: Final = 1


class Refused(ConnectionProblem):
    """The broker declined; the condition is the wire's word for why."""

    def __init__(self, condition: str, text: str) -> None:
        super().__init__(text)
        self.condition = condition


@final
class Client:
    """One connection to a broker, shown with a token to be allowed what is asked of it."""

    def __init__(self, reach: Reach) -> None:
        self._reach = reach
        self._socket = self._connect()
        self._connection = Connection(
            role=CLIENT,
            container_id="peeklock-cli",
            limits=Limits(max_message_size=_MESSAGE_SIZE_MAX),
            now=_now_ms(),
            hostname=reach.connection.host,
            credential=anonymous(),
        )
        self._connection.start()
        self._session = self._connection.begin_session()
        self._names = 0
        # What came for each link and was not taken yet.
        self._arrived: dict[Link, list[IncomingDelivery]] = {}
        self._attached: set[Link] = set()
        # How many outcomes were told, in either direction, and the first one that was a no.
        self._settled = 0
        self._refusal: Refused | None = None
        self._is_closing = False
        # A sender and a receiver for each address that answers requests.
        self._desks: dict[str, tuple[Link, Link]] = {}

    def close(self) -> None:
        """Say goodbye, as far as the broker still listens."""
        self._is_closing = True
        with contextlib.suppress(ConnectionProblem, OSError):
            self._connection.close()
            self._until(lambda: self._connection.closed, 5.0)
        self._socket.close()

    # --- tokens and requests

    def authorize(self, entity: str) -> None:
        """Show a token for an entity and what lies below it."""
        answer = self._request(
            "$cbs",
            {
                "operation": "put-token",
                "type": "servicebus.windows.net:sastoken",
                "name": f"sb://{self._reach.connection.host}/{entity}",
            },
            self._reach.connection.authorization("sb", entity),
        )
        _check_status(answer, "status-code", "status-description")

    def manage(self, entity: str, operation: str, arguments: dict[str, Any]) -> dict[Any, Any]:
        """Ask the management node of an entity; nothing found is an empty answer."""
        answer = self._request(
            f"{entity}/$management", {"operation": f"com.microsoft:{operation}"}, arguments
        )
        _check_status(answer, "statusCode", "statusDescription")
        return answer.body if isinstance(answer.body, dict) else {}

    def _request(self, address: str, properties: dict[str, Any], body: Any) -> Message:
        if address not in self._desks:
            self._desks[address] = self._desk(address)
        sender, receiver = self._desks[address]
        receiver.grant(1)
        request = Message(
            properties=Properties(message_id=f"request-{self._names}", reply_to=receiver.name),
            application_properties=properties,
            body_kind=VALUE_BODY,
            body=body,
        )
        self._send_one(sender, encode_message(request))
        answers = self._arrived.setdefault(receiver, [])
        if not self._until(lambda: bool(answers), ANSWERED_WITHIN_S):
            raise ConnectionProblem(f"'{address}' did not answer")
        return decode_message(answers.pop(0).payload)

    def _desk(self, address: str) -> tuple[Link, Link]:
        sender = self._session.attach_sender(self._name(), Target(address=address))
        name = self._name()
        receiver = self._session.attach_receiver(
            name, Source(address=address), target=Target(address=name)
        )
        self._wait_attached(sender)
        self._wait_attached(receiver)
        return sender, receiver

    # --- sending

    def send(self, entity: str, payloads: list[bytes]) -> None:
        """Send messages, and return when the broker has accepted all of them."""
        link = self._session.attach_sender(self._name(), Target(address=entity))
        self._wait_attached(link)
        self._settled = 0
        for payload in payloads:
            self._send_one(link, payload, is_settled=False)
        if not self._until(lambda: self._settled >= len(payloads), ANSWERED_WITHIN_S):
            raise ConnectionProblem(f"the broker accepted {self._settled} of {len(payloads)} only")

    def _send_one(self, link: Link, payload: bytes, *, is_settled: bool = True) -> None:
        if not self._until(lambda: link.credit > 0, ANSWERED_WITHIN_S):
            raise ConnectionProblem("the broker takes no more messages now")
        self._names += 1
        # A request is answered by another message; a sent one by an outcome that is waited for.
        link.send(self._names.to_bytes(4, "big"), b"", payload, is_settled, None)
        self._flush()

    # --- receiving

    def open_receiver(
        self, entity: str, *, deletes: bool, session_id: str | None = None, wait_s: float = 0.0
    ) -> Link | None:
        """Attach a receiver, in a session if one is named; None when no session comes free."""
        filter = None
        if session_id is not None:
            filter = {Symbol("com.microsoft:session-filter"): session_id or None}
        link = self._session.attach_receiver(
            self._name(),
            Source(address=entity, filter=filter),
            snd_settle_mode=_SETTLED if deletes else _UNSETTLED,
            rcv_settle_mode=_FIRST if deletes else _SECOND,
            properties={Symbol("com.microsoft:timeout"): Uint(max(1, round(wait_s * 1000)))},
        )
        try:
            self._wait_attached(link, wait_s + ANSWERED_WITHIN_S)
        except Refused as refusal:
            if refusal.condition == _TIMEOUT:
                return None
            raise
        return link

    def receive(self, link: Link, count: int, wait_s: float) -> list[IncomingDelivery]:
        """Take up to so many messages: wait for the first, then take what else is there."""
        arrived = self._arrived.setdefault(link, [])
        link.grant(count)
        self._until(lambda: bool(arrived), wait_s)
        if len(arrived) < count:
            # What is under way arrives before the answer to this.
            link.drain_credit()
            self._until(lambda: not link.drain, ANSWERED_WITHIN_S)
        taken = arrived[:count]
        del arrived[:count]
        return taken

    def complete(self, link: Link, deliveries: list[IncomingDelivery]) -> None:
        """Complete messages, and return when the broker has."""
        before = self._settled
        link.settle([delivery.id for delivery in deliveries], ACCEPTED, settled=False)
        if not self._until(lambda: self._settled - before >= len(deliveries), ANSWERED_WITHIN_S):
            raise ConnectionProblem("the broker did not answer whether messages are completed")

    def release(self, link: Link, deliveries: list[IncomingDelivery]) -> None:
        """Give messages back as if they had not been handed out."""
        link.settle([delivery.id for delivery in deliveries], RELEASED)
        self._flush()

    # --- the connection

    def _name(self) -> str:
        self._names += 1
        return f"peeklock-cli-{self._names}"

    def _wait_attached(self, link: Link, within_s: float = ANSWERED_WITHIN_S) -> None:
        if not self._until(lambda: link in self._attached, within_s):
            raise ConnectionProblem("the broker did not answer")

    def _until(self, done: Callable[[], bool], within_s: float) -> bool:
        """Write and read until something is so; tell whether it is in time."""
        deadline = time.monotonic() + within_s
        while True:
            self._flush()
            if self._refusal is not None:
                refusal, self._refusal = self._refusal, None
                raise refusal
            if done():
                return True
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            self._read(left)

    def _read(self, within_s: float) -> None:
        port = self._reach.amqp_port
        self._socket.settimeout(max(0.001, within_s))
        try:
            data = self._socket.recv(_READ_SIZE)
        except TimeoutError:
            return
        except OSError as error:
            raise self._reach.unreachable(port, error) from error
        if not data:
            raise self._reach.unreachable(port, EOFError("it closed the connection"))
        for event in self._connection.receive(data, _now_ms()):
            self._take(event)

    def _take(self, event: Event) -> None:
        if isinstance(event, TransfersReceived):
            self._arrived.setdefault(event.link, []).extend(event.deliveries)
        elif isinstance(event, AttachAnswered):
            self._attached.add(event.link)
        elif isinstance(event, SettlementsReceived):
            self._outcome(event.outcome, len(event.deliveries))
        elif isinstance(event, AnswersReceived):
            self._outcome(event.state, len(event.ids))
        elif isinstance(event, (LinkDetached, SessionEnded, Closed)):
            self._refuse(event.error)

    def _outcome(self, state: bytes, count: int) -> None:
        self._settled += count
        outcome = decode_composite(state)[0] if state else None
        if not isinstance(outcome, Accepted):
            self._refuse(getattr(outcome, "error", None))

    def _refuse(self, error: AmqpError | None) -> None:
        if self._refusal is None and not self._is_closing:
            condition = "" if error is None else error.condition
            text = "the broker declined" if error is None else error.description or condition
            self._refusal = Refused(condition, text)

    def _connect(self) -> socket.socket:
        host, port = self._reach.connection.address, self._reach.amqp_port
        try:
            plain = socket.create_connection((host, port), timeout=ANSWERED_WITHIN_S)
            if self._reach.context is None:
                return plain
            return self._reach.context.wrap_socket(plain, server_hostname=host)
        except OSError as error:
            raise self._reach.unreachable(port, error) from error

    def _flush(self) -> None:
        output = self._connection.take_output()
        if not output:
            return
        self._socket.settimeout(ANSWERED_WITHIN_S)
        try:
            self._socket.sendall(output)
        except OSError as error:
            raise self._reach.unreachable(self._reach.amqp_port, error) from error


def _check_status(answer: Message, code: str, description: str) -> None:
    properties = answer.application_properties or {}
    status = properties.get(code)
    if not isinstance(status, int) or not 200 <= status < 300:
        condition = properties.get("errorCondition") or properties.get("error-condition") or ""
        raise Refused(str(condition), str(properties.get(description) or f"status {status}"))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
