"""The node `$management` of an entity: requests in, commands to the queue, answers out."""

from typing import Any, Final, final

from peeklock.amqp.dialect import ASSOCIATED_LINK
from peeklock.amqp.sessions.delivery import IncomingDelivery
from peeklock.amqp.sessions.link import SENDER, Link
from peeklock.amqp.values.types import Int, Symbol
from peeklock.auth.token_rights import TokenRights
from peeklock.entity.commands import (
    RECEIVE_AND_DELETE,
    CancelScheduled,
    ClaimMessages,
    Command,
    DeleteMany,
    DropStages,
    PublishStages,
    ReceiveDeferred,
    Reserve,
    Schedule,
    SettleAll,
    SettleClaims,
)
from peeklock.entity.message import Message
from peeklock.entity.refusals import (
    NOT_ALLOWED,
    NOT_IMPLEMENTED,
    TIMED_OUT,
    UNAUTHORIZED,
    Refusal,
)
from peeklock.entity.replies import (
    Delivered,
    Drained,
    Numbered,
    Ready,
    ReceiverClosed,
    Refused,
    Reply,
    SendsAccepted,
    Settled,
)
from peeklock.entity.topics.commands import RuleCommand
from peeklock.gateway.amqp.address import Address
from peeklock.gateway.amqp.connection_output import ConnectionOutput
from peeklock.gateway.amqp.management.arguments import Arguments
from peeklock.gateway.amqp.management.calls import Call, Operation, numbers
from peeklock.gateway.amqp.management.operations import OPERATIONS
from peeklock.gateway.amqp.management.requests import NodeRequest, encode_response, receive_request
from peeklock.gateway.amqp.management.responses import ResponseLinks
from peeklock.gateway.amqp.management.session_operations import STATE_SIZE_MAX
from peeklock.gateway.amqp.management.timeouts import wait_ms_of
from peeklock.gateway.amqp.namespace_context import Entity
from peeklock.gateway.amqp.nodes.cbs import CREDIT
from peeklock.gateway.amqp.nodes.receiving import ReceivingNode
from peeklock.gateway.amqp.nodes.transactions import Transaction, Work
from peeklock.gateway.amqp.passes import Begun, Pass, request_cost
from peeklock.gateway.amqp.texts import operation_timed_out, unauthorized

_OK: Final = 200
_NO_CONTENT: Final = 204
# What a request may carry beside the largest message: names, numbers and the other arguments.
# As many lock tokens as it may have elements (`REQUEST_ELEMENTS_MAX`) are half of it.
_ARGUMENTS_SIZE_MAX: Final = 1024 * 1024


@final
class ManagementNode:
    """Answers the requests of one link; many may be under way at once."""

    __slots__ = (
        "_address",
        "_begun",
        "_claims",
        "_entity",
        "_late",
        "_next_tag",
        "_responses",
        "_under_way",
        "link",
        "output",
    )

    def __init__(
        self,
        output: ConnectionOutput,
        link: Link,
        entity: Entity,
        address: Address,
        responses: ResponseLinks,
        claims: TokenRights,
    ) -> None:
        self.output: Final = output
        self.link: Final = link
        self._entity: Final = entity
        self._address: Final = address
        self._responses: Final = responses
        self._claims: Final = claims
        self._under_way: Final[dict[int, Pending]] = {}
        # How many of those whose time was over have still no reply.
        self._late = 0
        self._next_tag = 0
        # A request that was read and is not asked yet.
        self._begun: Final = Begun()

    def open(self) -> None:
        """Attach, and take requests at once."""
        size_max = max(self._entity.message_size_max, STATE_SIZE_MAX) + _ARGUMENTS_SIZE_MAX
        self.link.accept(max_message_size=size_max)
        self.output.connection.held.allow_message(2 * size_max)
        self.link.grant(CREDIT)

    def transfers(self, deliveries: list[IncomingDelivery], now: int, work: Pass) -> int:
        """Pass each request on, or refuse it; answers how many are done, if not all of them fit
        this pass."""
        done = 0
        for delivery in deliveries:
            if work.left <= 0:
                break
            request: NodeRequest | None = self._begun.take(delivery)
            if request is None:
                work.left -= request_cost(len(delivery.payload))
                request = receive_request(
                    self.output, self.link, delivery, self._responses, self._address.key
                )
                if request is not None and work.left <= 0:
                    # It was long: what it asks for is for another pass.
                    self._begun.keep(delivery, request)
                    break
            done += 1
            if request is not None:
                self._ask(request, delivery.state, now)
        self._top_up()
        return done

    def replied(self, reply: Reply) -> None:
        """Answer the request that the reply belongs to."""
        if isinstance(reply, Refused):
            for tag in reply.tags:
                refused = self._under_way.pop(tag, None)
                if refused is None:
                    self._late -= 1
                else:
                    self._decline(refused, reply.refusal)
        elif isinstance(reply, (SendsAccepted, Delivered, Settled, Drained, Ready, ReceiverClosed)):
            raise AssertionError(f"a request is not answered with {reply!r}")
        else:
            # None: its time was over, and the client has been told so.
            pending = self._under_way.pop(reply.tag, None)
            if pending is None:
                self._late -= 1
            elif pending.transaction is None:
                self._answer(pending, reply)
            else:
                self._reserved(pending, pending.transaction, reply)
        self._top_up()

    def flush(self) -> None:
        """Let the answers go."""
        self.output.flush()

    def is_waiting(self, tag: int) -> bool:
        """Tell whether a request has no answer yet."""
        return tag in self._under_way

    def timed_out(self, tag: int, waited_ms: int) -> None:
        """Answer that it took too long, unless there was an answer."""
        pending = self._under_way.pop(tag, None)
        if pending is not None:
            self._late += 1
            self._decline(pending, Refusal(TIMED_OUT, operation_timed_out(waited_ms)))

    def _decline(self, pending: "Pending", refusal: Refusal) -> None:
        """Say why not; a transaction that it was for will miss it."""
        self._refuse(pending.request, refusal)
        if pending.transaction is not None:
            self.output.transactions.doom(pending.transaction, refusal)
            self.output.transactions.done(pending.transaction)

    def _ask(self, request: NodeRequest, state: bytes | None, now: int) -> None:
        name = request.properties.get("operation")
        operation = OPERATIONS.get(name) if isinstance(name, str) else None
        if operation is None:
            text = f"The operation '{name}' is not supported."
            self._refuse(request, Refusal(NOT_IMPLEMENTED, text), state)
            return
        address = self._address
        if not self._claims.allows(
            address.key, operation.right, self.output.namespace_context.clock.wall()
        ):
            text = unauthorized(operation.right, self.output.host, address.path)
            self._refuse(request, Refusal(UNAUTHORIZED, text), state)
            return
        self._next_tag += 1
        holder = self._holder(request)
        call = Call(
            Arguments(request.body),
            origin=self,
            tag=self._next_tag,
            entity=self._entity,
            sub_queue=address.sub_queue,
            lane=address.lane(self._entity.lane),
            holder=holder,
            held=holder.session_id if isinstance(holder, ReceivingNode) else None,
            now=now,
            ids=self.output.namespace_context.message_ids,
            consumer=self.output.consumer(self.link.name),
        )
        command = operation.read(call)
        refusal = call.arguments.refusal
        if refusal is not None:
            self._refuse(request, refusal, state)
        elif isinstance(command, Refusal):
            self._refuse(request, command, state)
        elif state is None:
            self._submit(Pending(request, operation, call), command)
        else:
            self._enlist(Pending(request, operation, call), command, state)

    def _enlist(self, pending: "Pending", command: Command | RuleCommand, state: bytes) -> None:
        """Do within a transaction what can be undone with it, and the rest at once."""
        transactions = self.output.transactions
        transaction = transactions.named_by(state)
        call = pending.call
        if isinstance(transaction, Refusal):
            self._refuse(pending.request, transaction)
            return
        if isinstance(command, (SettleAll, CancelScheduled)):
            work = Work(self._entity, self.link, command=command)
            refusal = transactions.enlist(transaction, work, call.now)
            if refusal is None:
                done = Numbered(self, call.tag, [])
                self._answer(pending, done)
            else:
                self._refuse(pending.request, refusal)
            return
        if isinstance(command, (ClaimMessages, SettleClaims)):
            text = "Messages cannot be claimed, nor claims settled, as part of a transaction."
            self._refuse(pending.request, Refusal(NOT_ALLOWED, text), state)
            return
        if isinstance(command, (PublishStages, DropStages)):
            text = "Stages can be neither published nor dropped as part of a transaction."
            self._refuse(pending.request, Refusal(NOT_ALLOWED, text), state)
            return
        if isinstance(command, DeleteMany) or _is_deleting(command):
            text = "Messages that are deleted at once cannot be part of a transaction."
            self._refuse(pending.request, Refusal(NOT_ALLOWED, text), state)
            return
        if isinstance(command, Schedule):
            # The client wants the numbers now; they are used when the transaction commits.
            pending.transaction = transaction
            pending.messages = command.messages
            transactions.begin(transaction, call.now)
            first = command.messages[0] if command.messages else None
            command = Reserve(self, call.tag, len(command.messages), first)
        self._submit(pending, command)

    def _submit(self, pending: "Pending", command: Command | RuleCommand) -> None:
        """Ask the entity, and wait for its reply as long as the client allows."""
        tag = pending.call.tag
        self._under_way[tag] = pending
        wait_ms = wait_ms_of(pending.request.properties)
        # What is deleted by the asking is worth an answer however late it comes.
        if wait_ms and not _is_deleting(command):
            self.output.request_timeouts.begin(self, tag, wait_ms)
        self._entity.submit(command)

    def _reserved(self, pending: "Pending", transaction: Transaction, reply: Reply) -> None:
        """Tell the numbers that messages will have if their transaction ends well."""
        call = pending.call
        command = Schedule(self, call.tag, pending.messages, numbers(reply))
        work = Work(self._entity, self.link, command=command)
        transactions = self.output.transactions
        refusal = transactions.enlist(transaction, work, call.now)
        if refusal is None:
            self._answer(pending, reply)
        else:
            self._refuse(pending.request, refusal)
        transactions.done(transaction)

    def _holder(self, request: NodeRequest) -> Any:
        """Find the session receiver that a request is made for, by the name of its link.

        A name that no session receiver of this connection has is answered with this node: it holds
        no session, so that a receiver that lost its link has lost its session too.
        """
        name = request.properties.get(ASSOCIATED_LINK)
        if not isinstance(name, str):
            return None
        link = self.output.connection.link_names.find(SENDER, name)
        node = None if link is None else link.context
        if isinstance(node, ReceivingNode) and node.entity is self._entity:
            return node
        return self

    def _answer(self, pending: "Pending", reply: Reply) -> None:
        body = pending.operation.write(pending.call, reply)
        status = _NO_CONTENT if body is None else _OK
        properties: dict[Any, Any] = {"statusCode": Int(status), "statusDescription": "OK"}
        if body is None and pending.operation.nothing:
            properties["errorCondition"] = Symbol(pending.operation.nothing)
        request = pending.request
        request.responses.respond(encode_response(request, properties, body))

    def _refuse(self, request: NodeRequest, refusal: Refusal, state: bytes | None = None) -> None:
        """Say why not; a transaction that the state names will miss what was asked for."""
        if state is not None:
            transactions = self.output.transactions
            transactions.doom(transactions.named_by(state), refusal)
        operation = request.properties.get("operation")
        declined = self.output.namespace_context.refusal_writer.decline(
            refusal,
            entity=self._address.path,
            operation=str(operation),
            peer=self.output.peer_name,
            kind=self._entity.kind,
        )
        properties: dict[Any, Any] = {
            "statusCode": Int(declined.status),
            "statusDescription": declined.text,
            "errorCondition": Symbol(declined.condition),
            "com.microsoft:tracking-id": declined.tracking_id,
        }
        request.responses.respond(encode_response(request, properties, {}))

    def _top_up(self) -> None:
        # What is under way counts: a client gets its credit back with the entity's replies.
        credit = CREDIT - len(self._under_way) - self._late
        if credit - self.link.credit >= CREDIT // 2:
            self.link.grant(credit)


def _is_deleting(command: Command | RuleCommand) -> bool:
    """Whether the messages that a command answers with are gone by it."""
    return isinstance(command, ReceiveDeferred) and command.mode == RECEIVE_AND_DELETE


@final
class Pending:
    """A request whose reply is still to come."""

    __slots__ = ("call", "messages", "operation", "request", "transaction")

    def __init__(self, request: NodeRequest, operation: Operation, call: Call) -> None:
        self.request: Final = request
        self.operation: Final = operation
        self.call: Final = call
        # What is to be scheduled within a transaction, once there are numbers for it.
        self.transaction: Transaction | None = None
        self.messages: list[Message] = []
