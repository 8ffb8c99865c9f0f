"""The coordinator: the node where a client declares and discharges its transactions."""

from typing import Final, final

from peeklock.amqp.errors import DecodeError
from peeklock.amqp.events import TransfersReceived
from peeklock.amqp.frames.states import Declare, Declared, Discharge
from peeklock.amqp.messages.message import VALUE_BODY, decode_message
from peeklock.amqp.sessions.delivery import IncomingDelivery
from peeklock.amqp.sessions.link import Link
from peeklock.amqp.values.composites import (
    ACCEPTED,
    composite_of,
    encode_composite,
    encode_rejected,
)
from peeklock.entity.refusals import INVALID_ARGUMENT, NOT_IMPLEMENTED, Refusal
from peeklock.gateway.amqp.connection_output import ConnectionOutput
from peeklock.gateway.amqp.namespace_context import amqp_error
from peeklock.gateway.amqp.nodes.cbs import CREDIT
from peeklock.gateway.amqp.passes import Pass, request_cost

# A declare or discharge is a few dozen bytes.
_SIZE_MAX: Final = 64 * 1024
# The tag of a discharge whose sender wants no answer; delivery ids are not negative.
_UNANSWERED: Final = -1


@final
class CoordinatorNode:
    """Takes the wishes of one control link; when that goes, its transactions are rolled back."""

    __slots__ = ("_under_way", "link", "output")

    def __init__(self, output: ConnectionOutput, link: Link) -> None:
        self.output: Final = output
        self.link: Final = link
        self._under_way = 0

    def open(self) -> None:
        """Attach, and take wishes at once."""
        self.link.accept(max_message_size=_SIZE_MAX)
        self.link.grant(CREDIT)

    def transfers(self, deliveries: list[IncomingDelivery], work: Pass) -> int:
        """Carry out each request; answers how many are done, if not all of them fit this pass."""
        done = 0
        for delivery in deliveries:
            if work.left <= 0:
                break
            done += 1
            work.left -= request_cost(len(delivery.payload))
            request = _read(delivery.payload)
            if isinstance(request, Refusal):
                self._refuse(delivery, "coordinate", request)
            elif isinstance(request, Declare):
                self._declare(delivery, request)
            else:
                self._under_way += 1
                tag = _UNANSWERED if delivery.settled else delivery.id
                self.output.transactions.discharge(request.txn_id, request.fail, self, tag)
        self._top_up()
        return done

    def discharged(self, tag: int, refusal: Refusal | None) -> None:
        """Tell the client how its transaction ended."""
        self._under_way -= 1
        state = ACCEPTED
        if refusal is not None:
            state = self._decline("discharge", refusal)
        if tag != _UNANSWERED:
            self.link.settle([tag], state)
        self._top_up()

    def flush(self) -> None:
        """Let the answers go."""
        self.output.flush()

    def gone(self) -> None:
        """The link is no more, and so is what it has not discharged."""
        self.output.transactions.abandon(self)

    def _declare(self, delivery: IncomingDelivery, request: Declare) -> None:
        if request.global_id is not None:
            text = "Only local transactions are supported: declare them without a global id."
            self._refuse(delivery, "declare", Refusal(NOT_IMPLEMENTED, text))
            return
        if delivery.settled:
            # Nobody could ever learn the id.
            return
        transaction = self.output.transactions.declare(self)
        if isinstance(transaction, Refusal):
            self._refuse(delivery, "declare", transaction)
        else:
            self.link.settle([delivery.id], encode_composite(Declared(txn_id=transaction.id)))

    def _refuse(self, delivery: IncomingDelivery, operation: str, refusal: Refusal) -> None:
        state = self._decline(operation, refusal)
        if not delivery.settled:
            self.link.settle([delivery.id], state)

    def _decline(self, operation: str, refusal: Refusal) -> bytes:
        declined = self.output.namespace_context.refusal_writer.decline(
            refusal, entity="", operation=operation, peer=self.output.peer_name
        )
        # A commit in doubt must not be called busy: trying it again could not help.
        return encode_rejected(amqp_error(declined))

    def _top_up(self) -> None:
        credit = CREDIT - self._under_way
        if credit - self.link.credit >= CREDIT // 2:
            self.link.grant(credit)


def _read(payload: bytes) -> Declare | Discharge | Refusal:
    try:
        message = decode_message(payload)
        request = composite_of(message.body) if message.body_kind == VALUE_BODY else None
    except DecodeError as error:
        return Refusal(INVALID_ARGUMENT, f"The message cannot be read: {error.text}.")
    if isinstance(request, (Declare, Discharge)):
        return request
    return Refusal(INVALID_ARGUMENT, "A coordinator takes declare and discharge, nothing else.")


@final
class ToldCoordinators:
    """What the coordinators of a connection were told and have not done: discharges come after all
    that they end."""

    __slots__ = ("_events",)

    def __init__(self) -> None:
        self._events: Final[list[TransfersReceived]] = []

    @property
    def is_empty(self) -> bool:
        """Whether nothing is to be done."""
        return not self._events

    def add(self, event: TransfersReceived) -> None:
        """Keep what came for a coordinator."""
        self._events.append(event)

    def carry_out(self, work: Pass) -> bool:
        """Carry out what fits a pass; return whether that is all of it."""
        for at, event in enumerate(self._events):
            node = event.link.context
            if isinstance(node, CoordinatorNode):
                done = node.transfers(event.deliveries, work)
                if done < len(event.deliveries):
                    del event.deliveries[:done]
                    del self._events[:at]
                    return False
        self._events.clear()
        return True
