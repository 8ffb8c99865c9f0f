"""Whether an entity that exists can be sent to or received from, over AMQP or HTTP, and why not."""

from peeklock.entity.definition import (
    DISABLED,
    RECEIVE_DISABLED,
    SEND_DISABLED,
    SUBSCRIPTION,
    TOPIC,
)
from peeklock.entity.refusals import ENTITY_DISABLED, NOT_ALLOWED, Refusal
from peeklock.gateway.amqp import texts
from peeklock.gateway.amqp.address import OWN, TRANSFER_DEAD_LETTERS, Address
from peeklock.gateway.amqp.namespace_context import Entity


def why_not_sent_to(namespace: str, address: Address, entity: Entity) -> Refusal | None:
    """Say why nothing can be sent to an entity."""
    if address.sub_queue != OWN:
        return Refusal(NOT_ALLOWED, texts.NO_SENDING_TO_DEAD_LETTERS)
    if entity.kind == SUBSCRIPTION:
        return Refusal(NOT_ALLOWED, texts.NO_SENDING_TO_SUBSCRIPTIONS)
    if entity.status in (DISABLED, SEND_DISABLED):
        return _disabled(namespace, entity)
    return None


def why_not_received_from(namespace: str, address: Address, entity: Entity) -> Refusal | None:
    """Say why nothing can be received from an entity, sessions aside."""
    if entity.kind == TOPIC and address.sub_queue != TRANSFER_DEAD_LETTERS:
        return Refusal(NOT_ALLOWED, texts.NO_RECEIVING_FROM_TOPICS)
    if entity.status in (DISABLED, RECEIVE_DISABLED):
        return _disabled(namespace, entity)
    # The sub-queues of every entity are plain, whatever the entity is.
    if address.sub_queue == OWN and entity.forward_to:
        return Refusal(NOT_ALLOWED, texts.NO_RECEIVING_WHILE_FORWARDING)
    return None


def _disabled(namespace: str, entity: Entity) -> Refusal:
    text = texts.entity_disabled(namespace, entity.kind, entity.path)
    return Refusal(ENTITY_DISABLED, text)
