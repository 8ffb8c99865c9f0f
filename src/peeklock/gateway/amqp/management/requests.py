"""Requests to the nodes `$cbs` and `$management`: read, and answered on another link."""

from typing import Any, Final, final

from peeklock.amqp.errors import DECODE_ERROR, AmqpError, DecodeError
from peeklock.amqp.messages.message import (
    NO_BODY,
    VALUE_BODY,
    AmqpMessage,
    decode_message,
    encode_message,
)
from peeklock.amqp.messages.message_forms import Properties
from peeklock.amqp.sessions.delivery import IncomingDelivery
from peeklock.amqp.sessions.link import Link
from peeklock.amqp.values.codec import ElementBudget
from peeklock.amqp.values.composites import ACCEPTED, encode_rejected
from peeklock.amqp.values.pieces import encode_pieces
from peeklock.entity.refusals import INVALID_ARGUMENT, NOT_ALLOWED, Refusal
from peeklock.gateway.amqp.connection_output import ConnectionOutput
from peeklock.gateway.amqp.management.responses import ResponseLinks, ResponseNode
from peeklock.gateway.amqp.namespace_context import rejected

# What the arguments of a request may have in their lists and maps. Reading them is one step.
REQUEST_ELEMENTS_MAX: Final = 32_768
_VALUE: Final = b"\x00\x53\x77"
# An answer up to this is put together at once.
_JOINED_MAX: Final = 65_536


@final
class NodeRequest:
    """What a client asks, and the link on which it waits for the answer."""

    __slots__ = ("body", "message_id", "properties", "responses")

    def __init__(
        self, message_id: Any, properties: dict[str, Any], body: Any, responses: ResponseNode
    ) -> None:
        # Decoded with its AMQP type, because the answer must carry it back with the same one.
        self.message_id: Any = message_id
        self.properties: Final = properties
        self.body: Any = body
        self.responses: Final = responses


def receive_request(
    output: ConnectionOutput, link: Link, delivery: IncomingDelivery, links: ResponseLinks, key: str
) -> NodeRequest | None:
    """Read a request and settle its delivery; None, and rejected, when it cannot be answered."""
    try:
        message = decode_message(delivery.payload, ElementBudget(REQUEST_ELEMENTS_MAX))
    except DecodeError as error:
        text = f"The request cannot be read: {error.text}."
        _reject(output, link, delivery, Refusal(INVALID_ARGUMENT, text), DECODE_ERROR)
        return None
    properties = message.properties
    reply_to = None if properties is None else properties.reply_to
    responses = links.choose(link.session, key, reply_to if isinstance(reply_to, str) else None)
    if responses is None:
        text = f"There is no link for the answer: attach a receiver to '{key}' on this session."
        _reject(output, link, delivery, Refusal(NOT_ALLOWED, text), None)
        return None
    if not delivery.settled:
        link.settle([delivery.id], ACCEPTED)
    return NodeRequest(
        None if properties is None else properties.message_id,
        {str(name): value for name, value in (message.application_properties or {}).items()},
        message.body if message.body_kind == VALUE_BODY else None,
        responses,
    )


def encode_response(
    request: NodeRequest, properties: dict[Any, Any], body: dict[Any, Any] | None
) -> list[bytes]:
    """Write the answer to a request, in pieces where it is large; None leaves the body out."""
    before = encode_message(
        AmqpMessage(
            properties=Properties(correlation_id=request.message_id),
            application_properties=properties,
            body_kind=NO_BODY,
        )
    )
    if body is None:
        return [before]
    pieces = encode_pieces(body)
    pieces[0] = before + _VALUE + pieces[0]
    return pieces if sum(map(len, pieces)) > _JOINED_MAX else [b"".join(pieces)]


def _reject(
    output: ConnectionOutput,
    link: Link,
    delivery: IncomingDelivery,
    refusal: Refusal,
    condition: str | None,
) -> None:
    declined = output.namespace_context.refusal_writer.decline(
        refusal, entity="", operation="request", peer=output.peer_name
    )
    if delivery.settled:
        return
    if condition is None:
        link.settle([delivery.id], rejected(declined))
    else:
        link.settle([delivery.id], encode_rejected(AmqpError(condition, declined.text)))
