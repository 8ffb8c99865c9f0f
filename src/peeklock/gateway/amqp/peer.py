"""One connection: routes its events to the nodes behind its links, and watches who may stay.

Nothing but `$cbs` can be attached before a token, every attach is checked, and a right that ends
takes its links with it. All of it happens in `receive` and `tick`; the broker's replies come to
the nodes directly, and `ConnectionOutput.flush` lets the answers go.
"""

import logging
from typing import Final, final

from peeklock.amqp.connection import SERVER, Connection
from peeklock.amqp.errors import (
    CONNECTION_FORCED,
    DETACH_FORCED,
    RESOURCE_LIMIT_EXCEEDED,
    UNAUTHORIZED_ACCESS,
    AmqpError,
)
from peeklock.amqp.events import (
    AttachRequested,
    Closed,
    Event,
    FlowReceived,
    LinkDetached,
    Opened,
    RunReceived,
    SaslInitReceived,
    SessionEnded,
    SettlementsReceived,
    StrayReceived,
    TransfersReceived,
)
from peeklock.amqp.parting import come_apart, drop_unfinished
from peeklock.amqp.sasl import ANONYMOUS, MSSBCBS, PLAIN
from peeklock.amqp.sessions.link import Link
from peeklock.amqp.transitions import DETACHING
from peeklock.auth.refusal import AuthRefusal
from peeklock.auth.token_rights import TokenRights
from peeklock.entity.refusals import LOCK_LOST, QUOTA_EXCEEDED, UNAUTHORIZED, Refusal
from peeklock.gateway import logbook
from peeklock.gateway.amqp import texts
from peeklock.gateway.amqp.connection_output import ConnectionOutput
from peeklock.gateway.amqp.connection_standing import (
    ASKED,
    ATTACHED,
    AUTHENTICATED,
    OPENED,
    ConnectionStanding,
)
from peeklock.gateway.amqp.management.node import ManagementNode
from peeklock.gateway.amqp.management.responses import ResponseLinks, ResponseNode
from peeklock.gateway.amqp.namespace_binding import NamespaceBinding
from peeklock.gateway.amqp.namespace_context import NamespaceContexts, Outlet, rejected
from peeklock.gateway.amqp.nodes.attaching import Attaching
from peeklock.gateway.amqp.nodes.cbs import TokenNode
from peeklock.gateway.amqp.nodes.coordinator import CoordinatorNode, ToldCoordinators
from peeklock.gateway.amqp.nodes.receiving import ReceivingNode
from peeklock.gateway.amqp.nodes.sending import SendingNode
from peeklock.gateway.amqp.passes import FLOW_COST, Pass
from peeklock.gateway.amqp.shown_key import NO_DEADLINE, ShownKey
from peeklock.gateway.quotas.shared_limits import SharedLimits
from peeklock.gateway.refusals import Declined

MECHANISMS: Final = (MSSBCBS, PLAIN, ANONYMOUS)

AT_ONCE: Final = 0
# Tokens end by the clock on the wall, which somebody may set: it is looked at so often.
LOOK_MS: Final = 30_000

_LOG: Final = logging.getLogger("peeklock.connections")
# Unauthenticated peers come and go as often as they like.
_CONNECTIONS: Final = logbook.Sparing(_LOG, lines_max=500)


@final
class Peer:
    """A client that speaks AMQP."""

    __slots__ = (
        "_at",
        "_attaching",
        "_binding",
        "_connection",
        "_coordinating",
        "_is_broken",
        "_is_leaving",
        "_is_over",
        "_key",
        "_left",
        "_responses",
        "_standing",
        "_token_due",
        "_token_rights",
        "_work",
        "_wrong_tokens",
        "deadline",
        "held",
        "output",
    )

    def __init__(
        self,
        namespace_contexts: NamespaceContexts,
        outlet: Outlet,
        name: str,
        at: int,
        *,
        host: str = "",
        shared_limits: SharedLimits | None = None,
        is_exposed: bool = False,
    ) -> None:
        """The name is for the log; the host is the address that it counts for. An exposed one is
        where others can read what is said."""
        namespace_context = namespace_contexts.first
        shared_limits = shared_limits or SharedLimits()
        self._standing: Final = ConnectionStanding(
            self, shared_limits, host, namespace_context.limits.held_without_token_max
        )
        self.held: Final = self._standing.held
        self._connection: Final = Connection(
            role=SERVER,
            container_id=namespace_context.container_id,
            limits=namespace_context.engine_limits,
            now=at,
            sasl_mechanisms=list(MECHANISMS),
            held=self.held,
        )
        self._connection.links_max = namespace_context.limits.links_without_token_max
        self._connection.sessions_max = namespace_context.limits.sessions_without_token_max
        self.output: Final = ConnectionOutput(
            namespace_context, self._connection, outlet, name, is_exposed=is_exposed
        )
        self._token_rights: Final = TokenRights()
        self._responses: Final = ResponseLinks()
        self._binding: Final = NamespaceBinding(namespace_contexts, self.output)
        self._key: Final = ShownKey(self._binding, shared_limits.wrong_keys, self._standing.address)
        self._attaching: Final = Attaching(
            self.output, self._token_rights, self._responses, self._binding
        )
        # What the coordinators were told with these events: discharges come after all they end.
        self._coordinating: Final = ToldCoordinators()
        # What one pass may do, and the events that are left for another one.
        self._work: Final = Pass()
        self._left: list[Event] = []
        self._is_over = False
        # Its links are to go, and whether that is because the connection broke.
        self._is_leaving = False
        self._is_broken = False
        # How many wrong tokens it has put, as long as it has no good one.
        self._wrong_tokens = 0
        # The loop's time when something last happened here.
        self._at = at
        # When a connection without any token is closed; it starts to run at open.
        self._token_due = NO_DEADLINE
        # When `tick` must be called at the latest, by the loop's time.
        self.deadline = at

    # --- what the protocol class calls

    def receive(self, data: bytes, at: int) -> None:
        """Take bytes from the client, act on them, and write what follows at once.

        `at` is the loop's time, in milliseconds: silence is measured by what nobody can set.
        """
        self._at = at
        self._work.begin()
        if at >= self.deadline or self._attaching.is_expiring:
            # Rights that have ended must not serve what has just arrived.
            self._tick(at)
        now = self.output.namespace_context.clock.now()
        # Links that may not stay must not be served, however many there are.
        is_sure = self._attaching.review(self._work)
        if is_sure and self._has_left:
            self._handle([], now)
        if not is_sure or self._has_left:
            self._connection.splitter.keep(data)
        else:
            self._handle(self._connection.receive(data, at), now)
        if self._is_leaving:
            self._leave()
        self.deadline = min(self.deadline, self.output.next_due(at, now))
        self.output.flush()
        if not self._binding.has_place:
            self._count_kept()

    def links(self) -> list[tuple[str, str, str]]:
        """Tell which links it has: their names, what the client is there, and the address."""
        return self._attaching.told()

    @property
    def is_behind(self) -> bool:
        """Whether frames that have come are left for another pass, or what they ask for."""
        if self._is_leaving and not self._attaching.is_empty:
            return True
        if not self._attaching.is_sure:
            return True
        return len(self._connection.splitter.rest) > 0 or self._has_left

    @property
    def _has_left(self) -> bool:
        return len(self._left) > 0 or not self._coordinating.is_empty

    def tick(self, at: int) -> None:
        """Act on what is due: heartbeats, silence, tokens that end; sets the next deadline."""
        self._work.begin()
        self._tick(at)

    def _tick(self, at: int) -> None:
        if self.output.is_lost:
            self.deadline = NO_DEADLINE
            return
        self._at = at
        clock = self.output.namespace_context.clock
        if at >= self._token_due:
            self._token_due = NO_DEADLINE
            self._close(CONNECTION_FORCED, "No token was put on $cbs in the time allowed for it.")
        if at >= self._key.due:
            self._take_turn()
        if self.output.is_stalled(at):
            self._close(RESOURCE_LIMIT_EXCEEDED, texts.STALLED)
        if self._attaching.expire(clock.wall()):
            self._attaching.review(self._work)
            self._claims_changed()
        self.output.expire(at, clock.now())
        if self.output.is_reading_held:
            # It may have said much; that we do not listen is not its silence.
            self._connection.excuse(at)
        deadline = self._connection.tick(at) or NO_DEADLINE
        if self._connection.closed:
            self._ended(self._connection.error, is_broken=True)
        deadline = min(deadline, self._token_due, self._key.due)
        deadline = min(deadline, self.output.next_due(at, clock.now()))
        next_expiry = self._token_rights.next_expiry()
        if next_expiry is not None:
            # The wall may be set meanwhile: it is looked at again before long.
            left_ms = min(max(0, next_expiry - clock.wall()), LOOK_MS)
            deadline = min(deadline, at + left_ms)
        self.deadline = deadline
        self.output.flush()

    def rights_changed(self) -> int:
        """Rules were changed; answers how many grants are to be reviewed for that."""
        return self._token_rights.begin_review()

    def review(self, count: int) -> None:
        """Review so many grants: a right whose key is gone, or grants less, ends here too."""
        lessened = self._token_rights.review(self.output.namespace_context.keys, count)
        for grant in lessened:
            self._attaching.doubt(grant.path, texts.REVOKED)
        if lessened:
            self._work.begin()
            self._attaching.review(self._work)
            self._claims_changed()
            self.output.flush()

    def hold_writing(self) -> None:
        """The client does not take what is written."""
        self.output.hold_writing()

    def resume_writing(self) -> None:
        """The client takes again: its receivers may be served again."""
        self.output.resume_writing()
        self.output.flush()

    def lost(self) -> bool:
        """The connection broke, or was closed for good: take it apart, as much as fits one pass;
        tells whether nothing of it stays in memory. What had come before is still done."""
        self.output.is_lost = True
        self._work.begin()
        self._attaching.expire(self.output.namespace_context.clock.wall())
        if not self._attaching.review(self._work):
            return False
        if self._has_left:
            self._handle([], self.output.namespace_context.clock.now())
            if self._has_left:
                return False
        self._connection.lost()
        self._ended(None, is_broken=True)
        if not self._leave():
            return False
        come_apart(self._connection)
        self.output.gone()
        self._standing.part()
        return True

    def shut_down(self) -> None:
        """Close politely, because the broker stops."""
        self._close(CONNECTION_FORCED, "The broker is shutting down.")
        self.output.flush()

    # --- what others need its room for

    def make_room(self) -> None:
        """Close, because it has no token and its place is needed."""
        self._let_go(CONNECTION_FORCED, texts.PLACE_NEEDED)

    def cut_off(self) -> None:
        """Close, because of all connections it holds most and the memory is needed."""
        _CONNECTIONS.write(
            logging.WARNING,
            "cut-off",
            peer=self.output.peer_name,
            held=self.held.used,
            text=texts.MEMORY_NEEDED,
        )
        self._let_go(RESOURCE_LIMIT_EXCEEDED, texts.MEMORY_NEEDED)

    def _let_go(self, condition: str, text: str) -> None:
        self._close(condition, text)
        self.output.flush()
        if self.output.outlet.unread():
            self.output.outlet.abort(text)
        else:
            self.output.outlet.close()
        # Not only when the system says that it is gone: others wait for the room.
        self._standing.let_go()

    def drop_unfinished(self) -> None:
        """Give up the messages that it has begun, because the broker needs the memory."""
        text = "The broker needs the memory of unfinished messages; send it again."
        events = drop_unfinished(self._connection, AmqpError(DETACH_FORCED, text))
        if self._has_left:
            self._left += events  # they have their turn behind what came before
        else:
            self._work.begin()
            self._handle(events, self.output.namespace_context.clock.now())
        self.output.flush()

    # --- events

    def _handle(self, events: list[Event], now: int) -> None:
        """Act on events, behind those that were left; some may be left when the pass is over."""
        if self._left:
            events = self._left + events
            self._left = []
        work = self._work
        at = 0
        for event in events:
            if work.left <= 0:
                break
            if isinstance(event, RunReceived):
                node = event.link.context
                if isinstance(node, SendingNode):
                    work.left -= len(event.ids)
                    node.run(event, now)
            elif isinstance(event, TransfersReceived):
                if not self._transfers(event, now):
                    break
            elif isinstance(event, SettlementsReceived):
                node = event.link.context
                if isinstance(node, ReceivingNode):
                    work.left -= len(event.deliveries)
                    node.settlements(event.outcome, event.settled, event.deliveries)
            elif isinstance(event, FlowReceived):
                work.left -= FLOW_COST
                self._flowed(event.link)
            elif not self._handle_other(event, now):
                break
            at += 1
        if at < len(events):
            self._left += events[at:]
        elif not self._coordinating.is_empty and not self._left:
            self._coordinating.carry_out(self._work)

    def _handle_other(self, event: Event, now: int) -> bool:
        """Act on what is rare; answers whether that could be in this pass."""
        if isinstance(event, AttachRequested):
            self._standing.progressed(ATTACHED)
            self._attaching.attach(event.link, now)
        elif isinstance(event, StrayReceived):
            self._work.left -= FLOW_COST
            self.output.transactions.missed(event.outcome)
            if event.is_awaited:
                declined = self._decline(Refusal(LOCK_LOST, texts.SETTLED_ALREADY), "settle")
                event.session.settling.answer(event.first, event.count, rejected(declined))
        else:
            if isinstance(event, LinkDetached) and event.link.state == DETACHING:
                # We ended it, because of what the peer did. A discharge that came behind that
                # may stand among those that are to be carried out now.
                self.output.transactions.link_ended()
            if not self._coordinating.carry_out(self._work):
                return False
            if isinstance(event, LinkDetached):
                self._attaching.detached(event)
            elif isinstance(event, SessionEnded):
                return self._attaching.session_ended(event, self._work)
            else:
                self._handle_rare(event, now)
        return True

    def _transfers(self, event: TransfersReceived, now: int) -> bool:
        """Hand deliveries to their node; answers whether it has done with all of them."""
        node = event.link.context
        deliveries = event.deliveries
        done = len(deliveries)
        if isinstance(node, (SendingNode, ManagementNode)):
            done = node.transfers(deliveries, now, self._work)
        elif isinstance(node, TokenNode):
            self._standing.progressed(ASKED)
            was_over_quota = self._binding.is_over_quota
            done = node.transfers(deliveries, self._work)
            if self._binding.is_over_quota and not was_over_quota:
                self._turn_away()
            self._tokens_put(node)
        elif isinstance(node, CoordinatorNode):
            self._coordinating.add(event)
        if done == len(deliveries):
            return True
        del deliveries[:done]
        return False

    def _flowed(self, link: Link) -> None:
        node = link.context
        if isinstance(node, (ReceivingNode, ResponseNode)):
            node.flowed()

    def _handle_rare(self, event: Event, now: int) -> None:
        if isinstance(event, SaslInitReceived):
            self._authenticate(event, now)
        elif isinstance(event, Opened):
            self._opened(event)
        elif isinstance(event, Closed):
            self._ended(event.error, is_broken=event.error is not None)
        else:
            raise AssertionError(f"a server is not told {event!r}")

    # --- who may stay

    def _authenticate(self, event: SaslInitReceived, now: int) -> None:
        if event.mechanism != PLAIN:
            refusal = None
            if event.mechanism not in MECHANISMS:
                text = f"No mechanism {event.mechanism} is offered."
                refusal = AuthRefusal("UnknownMechanism", text)
            self._authenticated(refusal, now)
            return
        refusal = self._key.show(event, self._at)
        if self._key.is_waiting:
            self.deadline = min(self.deadline, self._key.due)
        else:
            self._authenticated(refusal, now)

    def _take_turn(self) -> None:
        """Look at a key that has waited for its turn."""
        if self._key.is_waiting:
            self._authenticated(self._key.take_turn(), self.output.namespace_context.clock.now())

    def _authenticated(self, refusal: AuthRefusal | None, now: int) -> None:
        if refusal is None:
            self._standing.progressed(AUTHENTICATED)
            self._work.begin()
            self._handle(self._connection.accept_sasl(), now)
            return
        self._decline(Refusal(UNAUTHORIZED, refusal.text), "sasl")
        self._connection.refuse_sasl()

    def _opened(self, event: Opened) -> None:
        opened = event.open
        # Over WebSockets Python's client appends its path to the host (protocol 1.2).
        self.output.host = (opened.hostname or "localhost").partition("/")[0]
        self.output.container = opened.container_id
        self._standing.progressed(OPENED)
        grants = self._binding.open(self.output.host)
        _CONNECTIONS.write(
            logging.INFO,
            "connection-opened",
            peer=self.output.peer_name,
            container=opened.container_id,
            namespace=self.output.namespace_context.namespace if self._binding.is_bound else None,
        )
        if self._binding.is_over_quota:
            self._turn_away()
        elif isinstance(grants, AuthRefusal):
            # The key is good, but not in the namespace that the host name says.
            declined = self._decline(Refusal(UNAUTHORIZED, grants.text), "open")
            self._close(UNAUTHORIZED_ACCESS, declined.text)
        else:
            for grant in grants:
                self._token_rights.put(grant)
        self._claims_changed()

    def _tokens_put(self, node: TokenNode) -> None:
        """Look at what tokens have changed: whose links may stay, and whether it may."""
        for path in node.lessened:
            self._attaching.doubt(path, texts.REPLACED)
        node.lessened.clear()
        self._attaching.review(self._work)
        self._wrong_tokens += node.wrong
        node.wrong = 0
        limits = self.output.namespace_context.limits
        if self._wrong_tokens > limits.wrong_tokens_max and not self._binding.has_place:
            declined = self._decline(Refusal(UNAUTHORIZED, texts.TOO_MANY_TOKENS), "put-token")
            self._close(UNAUTHORIZED_ACCESS, declined.text)
        self._claims_changed()

    def _admit(self) -> None:
        """Let it have what a connection with a token may have."""
        namespace_context = self.output.namespace_context
        self._standing.admit(namespace_context.limits.held_bytes_max)
        self._connection.links_max = namespace_context.engine_limits.links_max
        self._connection.sessions_max = namespace_context.engine_limits.channel_max + 1
        self.output.transactions.living_max = namespace_context.limits.transactions_max

    def _count_kept(self) -> None:
        """Count what is unread or half said without a token; who leaves too much is cut off."""
        if not self._standing.count(self.output.outlet.unread(), self._connection.splitter.size):
            self.output.outlet.abort(texts.TOO_MUCH_KEPT)

    def _turn_away(self) -> None:
        """Close, because the namespace has no room for the connection."""
        namespace = self.output.namespace_context.namespace
        limit = self.output.namespace_context.connection_quota.connections_max
        text = f"The namespace '{namespace}' has {limit} connections, as many as it may have."
        declined = self._decline(Refusal(QUOTA_EXCEEDED, text), "open")
        self._close(RESOURCE_LIMIT_EXCEEDED, declined.text)

    def _decline(self, refusal: Refusal, operation: str) -> Declined:
        return self.output.namespace_context.refusal_writer.decline(
            refusal, entity="", operation=operation, peer=self.output.peer_name
        )

    def _claims_changed(self) -> None:
        """Start or stop the time for a token."""
        if self._binding.has_place and not self._standing.is_admitted:
            self._admit()
        if not self._token_rights.is_empty:
            self._token_due = NO_DEADLINE
        elif self._token_due == NO_DEADLINE:
            self._token_due = self._at + self.output.namespace_context.limits.token_timeout_ms
        self.deadline = AT_ONCE

    # --- the end

    def _close(self, condition: str, text: str) -> None:
        self._connection.close(AmqpError(condition, text))
        self._work.begin()
        self._is_leaving = True
        self._leave()

    def _leave(self) -> bool:
        """Let the links go, as many as fit this pass; tells whether that is all of them."""
        return self._attaching.leave(self._work, is_broken=self._is_broken)

    def _ended(self, error: AmqpError | None, *, is_broken: bool) -> None:
        if self._is_over:
            return
        self._is_over = True
        self._is_leaving = True
        self._is_broken = is_broken
        self._standing.leave()
        self._key.give_up()
        self._binding.leave()
        _CONNECTIONS.write(
            logging.INFO,
            "connection-closed",
            peer=self.output.peer_name,
            condition=None if error is None else error.condition,
            text=None if error is None else error.description,
        )
        self._work.begin()
        self._leave()
