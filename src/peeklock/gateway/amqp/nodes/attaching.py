"""The reception of a connection: which node an attach leads to, who may go there and stay."""

import logging
from bisect import bisect_left, insort
from typing import Any, Final, final

from peeklock.amqp.dialect import TRANSFER_DESTINATION
from peeklock.amqp.events import LinkDetached, SessionEnded
from peeklock.amqp.frames.termini import Coordinator
from peeklock.amqp.sessions.link import RECEIVER, Link
from peeklock.amqp.transitions import ENDED
from peeklock.auth.rights import LISTEN, NO_RIGHTS, SEND, Rights
from peeklock.auth.sas import resource_path
from peeklock.auth.token_rights import TokenRights
from peeklock.entity.commands import PEEK_LOCK, RECEIVE_AND_DELETE
from peeklock.entity.definition import QUEUE
from peeklock.entity.refusals import (
    ENTITY_NOT_FOUND,
    INVALID_ARGUMENT,
    NOT_ALLOWED,
    NOT_IMPLEMENTED,
    UNAUTHORIZED,
    Refusal,
)
from peeklock.gateway import logbook
from peeklock.gateway.amqp import texts
from peeklock.gateway.amqp.address import (
    COORDINATOR,
    ENTITY,
    OWN,
    TOKENS,
    Address,
    parse_address,
)
from peeklock.gateway.amqp.admission import why_not_received_from, why_not_sent_to
from peeklock.gateway.amqp.connection_output import ConnectionOutput
from peeklock.gateway.amqp.management.node import ManagementNode
from peeklock.gateway.amqp.management.responses import ResponseLinks, ResponseNode
from peeklock.gateway.amqp.management.stage_operations import stage_of
from peeklock.gateway.amqp.namespace_binding import NamespaceBinding
from peeklock.gateway.amqp.namespace_context import Entity, amqp_error
from peeklock.gateway.amqp.nodes.cbs import TokenNode
from peeklock.gateway.amqp.nodes.coordinator import CoordinatorNode
from peeklock.gateway.amqp.nodes.receiving import ReceivingNode
from peeklock.gateway.amqp.nodes.sending import SendingNode
from peeklock.gateway.amqp.nodes.session_attach import SessionRequest, read_session_request
from peeklock.gateway.amqp.passes import LINK_COST, REVIEW_COST, Pass

_LOG: Final = logging.getLogger("peeklock.connections")

# As many grants are dropped in one pass: each costs a microsecond.
EXPIRED_AT_ONCE: Final = 1_000
# The settle mode of a sender that settles before it sends [2.8.2]: receive and delete.
_SETTLED: Final = 1


@final
class Attaching:
    """Lets links in or turns them away, and remembers what each one may be there for."""

    __slots__ = (
        "_binding",
        "_by_path",
        "_doubted",
        "_doubted_paths",
        "_doubted_text",
        "_entity_links",
        "_output",
        "_paths",
        "_responses",
        "_token_rights",
        "is_expiring",
    )

    def __init__(
        self,
        output: ConnectionOutput,
        token_rights: TokenRights,
        responses: ResponseLinks,
        binding: NamespaceBinding,
    ) -> None:
        self._output: Final = output
        self._binding: Final = binding
        self._token_rights: Final = token_rights
        self._responses: Final = responses
        self._entity_links: Final[dict[Link, EntityLink]] = {}
        # The same by the paths on which they need rights, and these paths in order.
        self._by_path: Final[dict[str, dict[EntityLink, None]]] = {}
        self._paths: Final[list[str]] = []
        # Where rights may have ended, and what the links there are told then; those of one path,
        # which are looked at now.
        self._doubted_paths: Final[list[tuple[str, str]]] = []
        self._doubted: list[EntityLink] = []
        self._doubted_text = ""
        # More grants may have ended than were looked at; `expire` is to be called again.
        self.is_expiring = False

    def told(self) -> list[tuple[str, str, str]]:
        """Tell of each link its name, what the client is there, and the address."""
        found: list[tuple[str, str, str]] = []
        for entity_link in self._entity_links.values():
            role = "sender" if entity_link.link.role == RECEIVER else "receiver"
            found.append((entity_link.link.name, role, entity_link.address.key))
        return found

    # --- coming

    def attach(self, link: Link, now: int) -> None:
        """Answer the request for a link; that for a session may be answered later."""
        if link.role == RECEIVER and isinstance(link.target, Coordinator):
            self._open_coordinator(link)
            return
        address = _address_of(link)
        if isinstance(address, Refusal):
            self._turn_away(link, address, "", None)
            return
        entity = None
        right = NO_RIGHTS
        if address.kind != TOKENS:
            if address.kind == ENTITY:
                right = SEND if link.role == RECEIVER else LISTEN
            # Every operation of a management node is checked by itself.
            if not self._is_allowed(address, right):
                text = texts.unauthorized(right, self._output.host, address.path)
                self._turn_away(link, Refusal(UNAUTHORIZED, text), address.path, None)
                return
            namespace_context = self._output.namespace_context
            entity = namespace_context.entities.find(namespace_context.namespace, address.path)
            if entity is None:
                text = texts.entity_not_found(self._output.host, address.path)
                self._turn_away(link, Refusal(ENTITY_NOT_FOUND, text), address.path, None)
                return
        entity_link = EntityLink(self, link, address, right, entity)
        refusal = self._admit(entity_link, now)
        if refusal is not None:
            self._turn_away(link, refusal, address.path, entity)

    def _admit(self, entity_link: "EntityLink", now: int) -> Refusal | None:
        """Open the node behind a link, or say why not."""
        entity = entity_link.entity
        if entity is None or entity_link.address.kind != ENTITY:
            self._take_in(entity_link)
            self._open_request_node(entity_link)
        elif entity_link.link.role == RECEIVER:
            refusal = why_not_sent_to(
                self._output.namespace_context.namespace, entity_link.address, entity
            )
            if refusal is not None:
                return refusal
            destination = self._destination_of(entity_link)
            if isinstance(destination, Refusal):
                return destination
            stage = stage_of(entity_link.link)
            if isinstance(stage, Refusal):
                return stage
            if stage and destination is not None:
                return Refusal(NOT_ALLOWED, texts.NO_STAGING_FOR_OTHERS)
            self._take_in(entity_link)
            path = entity_link.address.path
            sending = SendingNode(self._output, entity_link.link, entity, path, destination, stage)
            entity_link.link.context = sending
            sending.open()
        else:
            request = read_session_request(entity_link.link)
            if isinstance(request, Refusal):
                return request
            refusal = self._refuse_receiver(entity_link.address, entity, request)
            if refusal is not None:
                return refusal
            self._take_in(entity_link)
            self._open_receiver(entity_link, entity, request, now)
        return None

    def _destination_of(self, entity_link: "EntityLink") -> Entity | Refusal | None:
        """The other entity that a sender's messages are forwarded to, where it names one; the
        right to send is needed on both."""
        named = (entity_link.link.properties or {}).get(TRANSFER_DESTINATION)
        if named is None:
            return None
        if not isinstance(named, str):
            return Refusal(
                INVALID_ARGUMENT, f"The link property {TRANSFER_DESTINATION} must be a string."
            )
        address = parse_address(named)
        if address.kind != ENTITY:
            return Refusal(INVALID_ARGUMENT, f"No message can be transferred to '{named}'.")
        if not self._is_allowed(address, SEND):
            text = texts.unauthorized(SEND, self._output.host, address.path)
            return Refusal(UNAUTHORIZED, text)
        namespace_context = self._output.namespace_context
        found = namespace_context.entities.find(namespace_context.namespace, address.path)
        if found is None:
            text = texts.entity_not_found(self._output.host, address.path)
            return Refusal(ENTITY_NOT_FOUND, text)
        entity_link.destination = address
        return why_not_sent_to(self._output.namespace_context.namespace, address, found) or found

    def _take_in(self, entity_link: "EntityLink") -> None:
        self._entity_links[entity_link.link] = entity_link
        for path in entity_link.paths():
            if path not in self._by_path:
                self._by_path[path] = {}
                insort(self._paths, path)
            self._by_path[path][entity_link] = None
        if entity_link.entity is not None:
            entity_link.entity.link_attached(entity_link)

    def _open_receiver(
        self, entity_link: "EntityLink", entity: Entity, request: SessionRequest | None, now: int
    ) -> None:
        link = entity_link.link
        address = entity_link.address
        node = ReceivingNode(
            self._output,
            link,
            entity,
            address.path,
            entity_link,
            lane=address.lane(entity.lane),
            mode=RECEIVE_AND_DELETE if link.snd_settle_mode == _SETTLED else PEEK_LOCK,
        )
        link.context = node
        if request is None:
            node.open()
        else:
            node.open_session(request, now)

    def _open_request_node(self, entity_link: "EntityLink") -> None:
        """Attach one of the two links of a request node: for requests, or for their answers."""
        link = entity_link.link
        entity = entity_link.entity
        if link.role != RECEIVER:
            response = ResponseNode(self._output, link, entity_link, entity_link.address.key)
            link.context = response
            self._responses.add(response)
            response.open()
        elif entity is None:
            tokens = TokenNode(
                self._output, link, self._responses, self._token_rights, self._binding
            )
            link.context = tokens
            tokens.open()
        else:
            management = ManagementNode(
                self._output, link, entity, entity_link.address, self._responses, self._token_rights
            )
            link.context = management
            management.open()

    def _open_coordinator(self, link: Link) -> None:
        """Let a control link in. It takes no right: Java's client declares a transaction before it
        puts any token, and all that a transaction does comes on links that are checked."""
        self._take_in(EntityLink(self, link, Address(COORDINATOR, "", OWN, ""), NO_RIGHTS, None))
        node = CoordinatorNode(self._output, link)
        link.context = node
        node.open()

    # --- being turned away

    def _refuse_receiver(
        self, address: Address, entity: Entity, request: SessionRequest | None
    ) -> Refusal | None:
        """Say why nothing can be received from an entity that exists."""
        refusal = why_not_received_from(self._output.namespace_context.namespace, address, entity)
        if refusal is not None:
            return refusal
        if address.sub_queue != OWN:
            return (
                None if request is None else Refusal(NOT_ALLOWED, texts.NO_SESSIONS_IN_SUB_QUEUES)
            )
        if entity.requires_session and request is None:
            return Refusal(NOT_ALLOWED, texts.SESSIONS_REQUIRED)
        if request is not None and not entity.requires_session:
            return Refusal(NOT_ALLOWED, texts.SESSIONS_NOT_REQUIRED)
        return None

    def _turn_away(self, link: Link, refusal: Refusal, path: str, entity: Entity | None) -> None:
        declined = self._output.namespace_context.refusal_writer.decline(
            refusal,
            entity=path,
            operation="attach-sender" if link.role == RECEIVER else "attach-receiver",
            peer=self._output.peer_name,
            kind=QUEUE if entity is None else entity.kind,
        )
        link.refuse(amqp_error(declined))

    # --- staying and going

    @property
    def is_empty(self) -> bool:
        """Whether all links that were let in are gone."""
        return not self._entity_links

    def leave(self, work: Pass, *, is_broken: bool) -> bool:
        """Let all links go, as many as fit this pass; tells whether that is all of them."""
        while self._entity_links:
            if work.left <= 0:
                return False
            link, entity_link = self._entity_links.popitem()
            self._entity_links[link] = entity_link
            self.gone(link, is_broken=is_broken)
            work.left -= LINK_COST
        self._doubted_paths.clear()
        self._doubted.clear()
        return True

    def expire(self, wall: int) -> bool:
        """Drop grants that have ended, some at a time, and doubt the links that lived on them;
        tells whether there were any. Nobody is sure until there are none."""
        expired = self._token_rights.expire(wall, EXPIRED_AT_ONCE)
        self.is_expiring = len(expired) == EXPIRED_AT_ONCE
        for grant in expired:
            self.doubt(grant.path, texts.EXPIRED)
        return len(expired) > 0

    def doubt(self, path: str, text: str) -> None:
        """Rights have ended at a path: the links there or below it are to be reviewed."""
        self._doubted_paths.append((path, text))

    @property
    def is_sure(self) -> bool:
        """Whether no link waits to be reviewed."""
        return not (self._doubted or self._doubted_paths or self.is_expiring)

    def review(self, work: Pass) -> bool:
        """Detach the doubted links that have no right to be there any more, as many as fit this
        pass; tells whether that is all of them."""
        while self._doubted or self._doubted_paths:
            if work.left <= 0:
                return False
            work.left -= REVIEW_COST
            if not self._doubted:
                path, self._doubted_text = self._doubted_paths.pop()
                self._doubted = self._below(path)
                continue
            entity_link = self._doubted.pop()
            destination = entity_link.destination
            if not self._is_allowed(entity_link.address, entity_link.right) or (
                destination is not None and not self._is_allowed(destination, SEND)
            ):
                self.show_out(entity_link, Refusal(UNAUTHORIZED, self._doubted_text))
                work.left -= LINK_COST
        return not self.is_expiring

    def _below(self, path: str) -> list["EntityLink"]:
        """Find who needs rights at a path or below it, without looking at anybody else."""
        found = list(self._by_path.get(path, ()))
        paths = self._paths
        # What begins with the path and a slash stands together; "0" is the character behind it.
        low = bisect_left(paths, f"{path}/") if path else 0
        high = bisect_left(paths, f"{path}0") if path else len(paths)
        for below in paths[low:high]:
            found.extend(self._by_path[below])
        return found

    def show_out(self, entity_link: "EntityLink", refusal: Refusal) -> None:
        """Detach a link, or refuse it if it still waits for its attach, and tell it why."""
        link = entity_link.link
        if link not in self._entity_links:
            return
        declined = self._output.namespace_context.refusal_writer.decline(
            refusal,
            entity=entity_link.address.path,
            operation="stay-attached" if link.attached else "attach-receiver",
            peer=self._output.peer_name,
            kind=QUEUE if entity_link.entity is None else entity_link.entity.kind,
        )
        if link.attached:
            self._output.transactions.link_ended()
        link.detach(amqp_error(declined))
        self.gone(link, is_broken=False)

    def show_out_at_once(self, entity_link: "EntityLink", refusal: Refusal) -> None:
        """The same, for somebody who does not know that a connection has to be flushed."""
        self.show_out(entity_link, refusal)
        self._output.flush()

    def cut_off(self, text: str) -> None:
        """End the whole connection at once; the log has the text."""
        self._output.outlet.abort(text)

    def gone(self, link: Link, *, is_broken: bool) -> None:
        """A link is no more: its node leaves the entity."""
        node = link.context
        link.context = None
        entity_link = self._entity_links.pop(link, None)
        if entity_link is not None:
            self._forget_paths(entity_link)
        if isinstance(node, ReceivingNode):
            node.gone(is_broken=is_broken)
        elif isinstance(node, ResponseNode):
            self._responses.remove(node)
            node.gone()
        elif isinstance(node, CoordinatorNode):
            node.gone()
        if entity_link is not None and entity_link.entity is not None:
            entity_link.entity.link_detached(entity_link)

    def detached(self, event: LinkDetached) -> None:
        """Let a link go that has ended; the log has why, if there is a reason."""
        if event.error is not None:
            _LOG.info(
                "%s",
                logbook.line(
                    "link-detached",
                    peer=self._output.peer_name,
                    link=event.link.name,
                    condition=event.error.condition,
                    text=event.error.description,
                ),
            )
        self.gone(event.link, is_broken=False)

    def session_ended(self, event: SessionEnded, work: Pass) -> bool:
        """Let the links of a session go; answers whether all of them fit this pass."""
        links = event.links
        while links:
            if work.left <= 0:
                return False
            work.left -= LINK_COST
            self.gone(links.pop(), is_broken=False)
        if event.session.state == ENDED:
            event.session.come_apart()
        return True

    def _forget_paths(self, entity_link: "EntityLink") -> None:
        for path in entity_link.paths():
            entity_links = self._by_path[path]
            entity_links.pop(entity_link, None)
            if not entity_links:
                del self._by_path[path]
                del self._paths[bisect_left(self._paths, path)]

    def _is_allowed(self, address: Address, right: Rights) -> bool:
        rights = self._token_rights.rights(address.key, self._output.namespace_context.clock.wall())
        return rights != NO_RIGHTS and rights & right == right


@final
class EntityLink:
    """A link that was let in: what for, and at which entity."""

    __slots__ = ("_attaching", "address", "destination", "entity", "link", "right")

    def __init__(
        self,
        attaching: Attaching,
        link: Link,
        address: Address,
        right: Rights,
        entity: Entity | None,
    ) -> None:
        self._attaching: Final = attaching
        self.link: Final = link
        self.address: Final = address
        self.right: Final = right
        self.entity: Final[Entity | None] = entity
        # The other entity that it sends to, on which the right to send is needed as well.
        self.destination: Address | None = None

    def paths(self) -> list[str]:
        """Where it needs rights; the nodes for tokens and transactions are open to all."""
        if self.address.kind in (TOKENS, COORDINATOR):
            return []
        paths = [resource_path(self.address.key)]
        if self.destination is not None:
            other = resource_path(self.destination.key)
            if other not in paths:
                paths.append(other)
        return paths

    def dismiss(self, refusal: Refusal) -> None:
        """The link must go, and is told why."""
        self._attaching.show_out_at_once(self, refusal)

    def cut(self, text: str) -> None:
        """The connection of the link ends at once, and nobody is told."""
        self._attaching.cut_off(text)


def _address_of(link: Link) -> Address | Refusal:
    terminus: Any = link.target if link.role == RECEIVER else link.source
    if terminus is None:
        return Refusal(INVALID_ARGUMENT, "The link has neither source nor target.")
    if terminus.dynamic:
        return Refusal(NOT_IMPLEMENTED, "Dynamic nodes are not supported.")
    address = terminus.address
    if not isinstance(address, str):
        return Refusal(INVALID_ARGUMENT, "The address of a link must be a string.")
    return parse_address(address)
