"""Requests to the nodes `$cbs` and `$management`: many under way, answered in any order."""

import asyncio
from typing import Any, Final, final

from peeklock.amqp.errors import DecodeError
from peeklock.amqp.frames.termini import Source, Target
from peeklock.amqp.messages.message import VALUE_BODY, AmqpMessage, decode_message, encode_message
from peeklock.amqp.messages.message_forms import Properties
from peeklock.amqp.sessions.delivery import IncomingDelivery, OutgoingDelivery
from peeklock.amqp.sessions.session import Session
from peeklock.amqp.values.codec import ElementBudget
from peeklock.amqp.values.composites import ACCEPTED
from peeklock.client.connections.attachment import Attachment
from peeklock.client.connections.transport import Transport
from peeklock.client.exceptions import (
    OperationTimeoutError,
    ServiceBusConnectionError,
    ServiceBusError,
    from_status,
)
from peeklock.client.sending.sender_link import SenderLink

# Answers that may be on their way at once; granted anew when half of it is used.
_CREDIT: Final = 1000
# An honest element of an answer takes a byte or more, but for a few.
_ELEMENTS_FREE: Final = 1024


@final
class RequestChannel:
    """A pair of links to one node: requests go out on one, their answers come in on the other."""

    def __init__(self, transport: Transport, address: str, name: str, session: Session) -> None:
        self.address: Final = address
        self._loop: Final = transport.loop
        self._requests: Final = SenderLink(
            transport, f"{name}-requests", Target(address=address), session=session
        )
        self._requests.when_gone = self._fail_all
        link = session.attach_receiver(name, Source(address=address), target=Target(address=name))
        self._answers: Final = Attachment(transport, link, self)
        self._number = 0
        # What is not answered yet, by the id of its request.
        self._asked: dict[str, asyncio.Future[AmqpMessage]] = {}

    @property
    def is_open(self) -> bool:
        """Whether requests can be made."""
        return self._answers.is_open and self._requests.is_open

    @property
    def is_gone(self) -> bool:
        """Whether one of the links is no more, so that another channel is needed."""
        return self._answers.error is not None or self._requests.is_gone

    async def wait_open(self, within_s: float) -> None:
        """Wait until the broker has attached both links."""
        try:
            await self._requests.wait_open(within_s)
            await self._answers.wait(within_s)
        except BaseException:
            self.leave()
            raise

    async def ask(
        self,
        properties: dict[str, Any],
        body: Any,
        within_s: float,
        state: bytes | None = None,
    ) -> AmqpMessage:
        """Send a request and wait for its answer, whatever that says.

        `state` makes it part of a transaction.
        """
        self._number += 1
        number = f"{self._number}"
        request = AmqpMessage(
            properties=Properties(message_id=number, reply_to=self._answers.link.name),
            application_properties=properties,
            body_kind=VALUE_BODY,
            body=body,
        )
        answer: asyncio.Future[AmqpMessage] = self._loop.create_future()
        self._asked[number] = answer
        sent = self._requests.submit(encode_message(request), state=state)
        sent.add_done_callback(lambda sent: _pass_on(sent, answer))
        try:
            async with asyncio.timeout(within_s):
                return await answer
        except TimeoutError as error:
            raise OperationTimeoutError(
                f"'{self.address}' did not answer within {within_s} s"
            ) from error
        finally:
            del self._asked[number]
            sent.cancel()

    def leave(self) -> None:
        """Detach what is still attached, without waiting."""
        error = ServiceBusConnectionError("the link was closed")
        self._requests.leave(error)
        self._answers.leave(error)

    def _fail_all(self, error: ServiceBusError) -> None:
        for answer in self._asked.values():
            if not answer.done():
                answer.set_exception(
                    type(error)(
                        error.message, condition=error.condition, is_retryable=error.is_retryable
                    )
                )

    # --- what the transport calls

    def on_attached(self) -> None:
        """The broker can answer: let it."""
        self._answers.link.grant(_CREDIT)
        self._answers.attached()

    def on_transfers(self, deliveries: list[IncomingDelivery]) -> None:
        """Answers came."""
        link = self._answers.link
        unsettled = [delivery.id for delivery in deliveries if not delivery.settled]
        if unsettled:
            link.settle(unsettled, ACCEPTED)
        if link.credit <= _CREDIT // 2:
            link.grant(_CREDIT)
        for delivery in deliveries:
            self._answered(delivery.payload)

    def _answered(self, payload: bytes) -> None:
        try:
            # It is our own broker that answers: as many elements as there are bytes.
            message = decode_message(payload, ElementBudget(len(payload) + _ELEMENTS_FREE))
        except DecodeError as error:
            self._fail_all(ServiceBusError(f"an answer cannot be read: {error.text}"))
            return
        number = None if message.properties is None else message.properties.correlation_id
        answer = self._asked.get(number) if isinstance(number, str) else None
        # Whoever asked may have given up.
        if answer is not None and not answer.done():
            answer.set_result(message)

    def on_gone(self, error: ServiceBusError, lost: list[OutgoingDelivery]) -> None:  # noqa: ARG002
        """No answer can come any more; whoever asks next opens another channel."""
        if self._answers.gone(error):
            self._fail_all(error)

    def on_flow(self) -> None:
        """Nothing is drained here."""

    def on_outcomes(
        self,
        outcome: bytes,
        is_settled: bool,  # noqa: ARG002
        deliveries: list[OutgoingDelivery],
    ) -> None:
        """Nothing is sent on the link of the answers; the engine sees to that."""
        raise AssertionError(f"{len(deliveries)} outcomes on a receiving link: {outcome!r}")

    def on_answers(self, state: bytes, ids: list[int]) -> None:
        """The broker need not settle its answers after we did."""

    def pump(self) -> None:
        """There is nothing to send on this link."""


def content(answer: AmqpMessage) -> dict[Any, Any]:
    """Return what a management node answered; raise what it declined."""
    properties = answer.application_properties or {}
    status = properties.get("statusCode")
    if not isinstance(status, int) or not 200 <= status < 300:
        condition = properties.get("errorCondition")
        text = str(properties.get("statusDescription") or f"status {status}")
        raise from_status(status if isinstance(status, int) else 500, str(condition or ""), text)
    return answer.body if isinstance(answer.body, dict) else {}


def _pass_on(sent: "asyncio.Future[Any]", answer: "asyncio.Future[AmqpMessage]") -> None:
    """A request that was not taken is not answered either."""
    error = None if sent.cancelled() else sent.exception()
    if error is not None and not answer.done():
        answer.set_exception(error)
