"""The reception of a connection: which node an attach leads to, and who may go there."""

from typing import Any, Final, final

from peeklock.amqp.composites import Coordinator
from peeklock.amqp.link import RECEIVER, Link
from peeklock.auth.claims import Claims
from peeklock.auth.rights import LISTEN, NO_RIGHTS, SEND, Rights
from peeklock.entity.commands import MAIN, PEEK_LOCK, RECEIVE_AND_DELETE
from peeklock.entity.definition import DISABLED, RECEIVE_DISABLED, SEND_DISABLED
from peeklock.entity.refusals import (
    ENTITY_DISABLED,
    ENTITY_NOT_FOUND,
    INVALID_ARGUMENT,
    NOT_ALLOWED,
    NOT_IMPLEMENTED,
    UNAUTHORIZED,
    Refusal,
)
from peeklock.gateway.amqp.address import ENTITY, NOWHERE, TOKENS, Address, parse_address
from peeklock.gateway.amqp.cbs import TokenNode
from peeklock.gateway.amqp.door import Entity, amqp_error
from peeklock.gateway.amqp.management import ManagementNode
from peeklock.gateway.amqp.receiving import ReceivingNode
from peeklock.gateway.amqp.responses import ResponseLinks, ResponseNode
from peeklock.gateway.amqp.sending import SendingNode
from peeklock.gateway.amqp.texts import entity_disabled, entity_not_found, unauthorized
from peeklock.gateway.amqp.wire import Wire

# The settle mode of a sender that settles before it sends [2.8.2]: receive and delete.
_SETTLED: Final = 1
_SESSION_FILTER: Final = "com.microsoft:session-filter"


@final
class Attaching:
    """Lets links in or turns them away, and remembers what each one may be there for."""

    __slots__ = ("_claims", "_guests", "_responses", "_wire")

    def __init__(self, wire: Wire, claims: Claims, responses: ResponseLinks) -> None:
        self._wire: Final = wire
        self._claims: Final = claims
        self._responses: Final = responses
        self._guests: Final[dict[Link, Guest]] = {}

    def attach(self, link: Link, now: int) -> None:
        """Answer the wish for a link."""
        address = _address_of(link)
        refusal = address if isinstance(address, Refusal) else self._admit(link, address, now)
        if refusal is not None:
            declined = self._wire.door.decline(
                refusal,
                entity=address.path if isinstance(address, Address) else "",
                operation="attach-sender" if link.role == RECEIVER else "attach-receiver",
                peer=self._wire.peer_name,
            )
            link.refuse(amqp_error(declined))

    def may_stay(self, link: Link, now: int) -> bool:
        """Whether the claims still give what the link was let in for."""
        guest = self._guests.get(link)
        if guest is None or guest.address.kind == TOKENS:
            return True
        return self._is_allowed(guest.address, guest.right, now)

    def path_of(self, link: Link) -> str:
        """The entity that a link was let in for."""
        guest = self._guests.get(link)
        return "" if guest is None else guest.address.path

    def links(self) -> list[Link]:
        """The links that were let in and not forgotten."""
        return list(self._guests)

    def forget(self, link: Link) -> None:
        """A link is gone."""
        self._guests.pop(link, None)

    def _admit(self, link: Link, address: Address, now: int) -> Refusal | None:
        sends = link.role == RECEIVER
        if address.kind == TOKENS:
            self._guests[link] = Guest(address, NO_RIGHTS)
            self._open_request_node(link, address, None)
            return None
        right = NO_RIGHTS
        if address.kind != ENTITY:
            pass  # Every operation of a management node is checked by itself.
        elif sends:
            right = SEND
        else:
            right = LISTEN
        if not self._is_allowed(address, right, now):
            return Refusal(UNAUTHORIZED, unauthorized(right, self._wire.host, address.path))
        door = self._wire.door
        entity = None
        if address.kind != NOWHERE:
            entity = door.entities.find(door.namespace, address.path)
        if entity is None:
            return Refusal(ENTITY_NOT_FOUND, entity_not_found(self._wire.host, address.path))
        if address.kind == ENTITY:
            refusal = self._refuse_entity(link, address, entity)
            if refusal is not None:
                return refusal
        self._guests[link] = Guest(address, right)
        if address.kind != ENTITY:
            self._open_request_node(link, address, entity)
        elif sends:
            sending = SendingNode(self._wire, link, entity, address.path)
            link.context = sending
            sending.open()
        else:
            settled = link.snd_settle_mode == _SETTLED
            receiving = ReceivingNode(
                self._wire,
                link,
                entity,
                address.path,
                lane=address.lane,
                mode=RECEIVE_AND_DELETE if settled else PEEK_LOCK,
            )
            link.context = receiving
            receiving.open()
        return None

    def _is_allowed(self, address: Address, right: Rights, now: int) -> bool:
        rights = self._claims.rights(address.key, now)
        return rights != NO_RIGHTS and rights & right == right

    def _refuse_entity(self, link: Link, address: Address, entity: Entity) -> Refusal | None:
        """Say why this link cannot be had from an entity that exists."""
        status = entity.status
        if link.role == RECEIVER:
            if address.lane != MAIN:
                return Refusal(NOT_ALLOWED, "Messages cannot be sent to a dead-letter queue.")
            is_disabled = status in (DISABLED, SEND_DISABLED)
        else:
            filters = link.source.filter
            if filters is not None and any(str(name) == _SESSION_FILTER for name in filters):
                return Refusal(
                    NOT_ALLOWED,
                    "It is not possible for an entity that does not require sessions to create a "
                    "sessionful message receiver.",
                )
            is_disabled = status in (DISABLED, RECEIVE_DISABLED)
        if is_disabled:
            namespace = self._wire.door.namespace
            return Refusal(ENTITY_DISABLED, entity_disabled(namespace, address.path))
        return None

    def _open_request_node(self, link: Link, address: Address, entity: Entity | None) -> None:
        """Attach one of the two links of a request node: for requests, or for their answers."""
        if link.role != RECEIVER:
            response = ResponseNode(self._wire, link, address.key)
            link.context = response
            self._responses.add(response)
            response.open()
        elif entity is None:
            tokens = TokenNode(self._wire, link, self._responses, self._claims)
            link.context = tokens
            tokens.open()
        else:
            management = ManagementNode(
                self._wire, link, entity, address, self._responses, self._claims
            )
            link.context = management
            management.open()


@final
class Guest:
    """What an attached link was let in for."""

    __slots__ = ("address", "right")

    def __init__(self, address: Address, right: Rights) -> None:
        self.address: Final = address
        self.right: Final = right


def _address_of(link: Link) -> Address | Refusal:
    terminus: Any = link.target if link.role == RECEIVER else link.source
    if isinstance(terminus, Coordinator):
        return Refusal(NOT_IMPLEMENTED, "Transactions are not supported.")
    if terminus is None:
        return Refusal(INVALID_ARGUMENT, "The link has neither source nor target.")
    if terminus.dynamic:
        return Refusal(NOT_IMPLEMENTED, "Dynamic nodes are not supported.")
    address = terminus.address
    if not isinstance(address, str):
        return Refusal(INVALID_ARGUMENT, "The address of a link must be a string.")
    return parse_address(address)
