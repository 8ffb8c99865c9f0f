"""The node of the runtime REST API: every request about messages comes here (protocol 10)."""

from typing import Any, Final, final
from urllib.parse import parse_qs
from uuid import UUID

from peeklock.auth.rights import LISTEN, SEND
from peeklock.clock import Clock
from peeklock.entity.commands import (
    ABANDON,
    Command,
    Peek,
    RenewLocks,
    SendBatch,
    SendMany,
    SettleMany,
)
from peeklock.entity.definition import QUEUE
from peeklock.entity.deliveries import Delivery, LockToken
from peeklock.entity.message import Message
from peeklock.entity.moves.settling import LANE_BITS
from peeklock.entity.refusals import (
    ENTITY_NOT_FOUND,
    INVALID_ARGUMENT,
    LOCK_LOST,
    LOCK_LOST_TEXT,
    MESSAGE_NOT_FOUND,
    MESSAGE_TOO_BIG,
    NOT_ALLOWED,
    Refusal,
)
from peeklock.entity.replies import Found, Numbered, Refused
from peeklock.entity.settlement import PLAIN_COMPLETE, Settlement
from peeklock.gateway.amqp import texts
from peeklock.gateway.amqp.address import ENTITY, OWN, parse_address
from peeklock.gateway.amqp.admission import why_not_received_from, why_not_sent_to
from peeklock.gateway.amqp.management.lock_tokens import token_of, uuid_of
from peeklock.gateway.amqp.namespace_context import Entities
from peeklock.gateway.http.answer import Answer, bad_request, not_allowed, not_found
from peeklock.gateway.http.messages.entity_request import EntityRequest
from peeklock.gateway.http.messages.errors import error, in_this_form
from peeklock.gateway.http.messages.incoming import is_batch, read_long_batch, read_message
from peeklock.gateway.http.messages.instants import http_date
from peeklock.gateway.http.messages.malformed import MalformedRequest
from peeklock.gateway.http.messages.origins import CONSUMER, CommandReply, Reception
from peeklock.gateway.http.messages.outgoing import message_id_of, received
from peeklock.gateway.http.messages.places import HEAD, ONE, SENDING, MessagePath, is_guid, place_of
from peeklock.gateway.http.request import HttpRequest
from peeklock.gateway.http.token_guard import TokenGuard
from peeklock.gateway.identifiers import MessageIds, RandomSource
from peeklock.gateway.refusals import RefusalWriter

# Seconds: how long a receiver waits that does not say, and how long at most.
WAIT_S_MAX: Final = 60
_WAIT_DIGITS_MAX: Final = 9
# JSON writes a message longer than it is; what it holds is measured when it was read.
_JSON_FACTOR: Final = 2
_HEADS_BYTES: Final = 64 * 1024
_NO_SESSIONS: Final = (
    "The entity requires sessions, and sessions cannot be received by HTTP. Receive them with an "
    "AMQP client."
)

_METHODS: Final = {
    SENDING: ["POST"],
    HEAD: ["POST", "DELETE"],
    ONE: ["PUT", "POST", "DELETE"],
}
# An entity that is not there is 404; one that goes while its receiver waits is gone.
_GONE: Final = 410

_CREATED: Final = Answer(201, {}, content=b"")
_DONE: Final = Answer(200, {}, content=b"")
_NOTHING: Final = Answer(204, {}, content=b"")


@final
class MessagesNode:
    """Sends, receives and settles for clients that speak HTTP."""

    def __init__(
        self,
        entities: Entities,
        guard: TokenGuard,
        refusal_writer: RefusalWriter,
        clock: Clock,
        random_source: RandomSource,
        namespace: str,
    ) -> None:
        self._entities = entities
        self._guard = guard
        self._refusal_writer = refusal_writer
        self._clock = clock
        self._ids = MessageIds(random_source)
        self._namespace = namespace

    async def answer(self, request: HttpRequest) -> Answer:
        """Answer a request whose path is about messages."""
        asked = self._let_in(request)
        if isinstance(asked, Answer):
            return asked
        try:
            if asked.place.kind == SENDING:
                return await self._send(asked)
            if asked.place.kind == HEAD:
                return await self._receive(asked)
            return await self._settle(asked)
        except MalformedRequest as wrong:
            return self._refuse(asked, Refusal(INVALID_ARGUMENT, str(wrong)))

    # --- large bodies

    def body_bytes_max(self, request: HttpRequest) -> int:
        """How large a body is read, told from the head: nobody else's than a sender's is large."""
        place = place_of(request.method, request.path)
        if place is None or place.kind != SENDING:
            return 0
        asked = self._let_in(request)
        if isinstance(asked, Answer):
            return 0
        size_max = asked.entity.message_size_max
        return (size_max * _JSON_FACTOR if is_batch(request) else size_max) + _HEADS_BYTES

    def too_large(self, request: HttpRequest) -> Answer:
        """Refuse a body that was not read."""
        place = place_of(request.method, request.path)
        if place is None or place.kind != SENDING:
            answer = bad_request("The body of the request is too large.")
            return answer if place is None else in_this_form(answer)
        asked = self._let_in(request)
        if isinstance(asked, Answer):
            return asked
        return self._refuse(asked, _too_big(asked.entity.message_size_max))

    # --- coming in

    def _let_in(self, request: HttpRequest) -> EntityRequest | Answer:
        place = place_of(request.method, request.path)
        if place is None:
            return in_this_form(not_found(request.path))
        # Before anything else: who may not come in learns nothing. The whole path is what a token
        # may be for, so that one for the entity or for everything is as good.
        right = SEND if place.kind == SENDING else LISTEN
        refused = self._guard.check(request, request.path, right)
        if refused is not None:
            return in_this_form(refused)
        methods = _METHODS[place.kind]
        if request.method not in methods:
            return in_this_form(not_allowed(request.method, methods))
        return self._at(request, place)

    def _at(self, request: HttpRequest, place: MessagePath) -> EntityRequest | Answer:
        address = parse_address(place.entity)
        entity = None
        if address.kind == ENTITY:
            entity = self._entities.find(self._namespace, address.path)
        if entity is None:
            host = request.headers.get("host", "localhost")
            refusal = Refusal(ENTITY_NOT_FOUND, texts.entity_not_found(host, address.path))
            return self._declined(request, refusal, address.path, QUEUE)
        return EntityRequest(request, place, address, entity)

    # --- sending

    async def _send(self, asked: EntityRequest) -> Answer:
        entity = asked.entity
        refusal = why_not_sent_to(self._namespace, asked.address, entity)
        if refusal is not None:
            return self._refuse(asked, refusal)
        origin = CommandReply()
        command: Command
        now = self._clock.now()
        if is_batch(asked.request):
            messages = await read_long_batch(asked.request, now, self._ids, entity.wants_keys)
            command = SendBatch(origin, 0, messages)
        else:
            messages = [read_message(asked.request, now, self._ids, entity.wants_keys)]
            command = SendMany(origin, [0], messages)
        if _size(messages) > entity.message_size_max:
            return self._refuse(asked, _too_big(entity.message_size_max))
        entity.submit(command)
        reply = await origin.reply()
        return self._refuse(asked, reply.refusal) if isinstance(reply, Refused) else _CREATED

    # --- receiving

    async def _receive(self, asked: EntityRequest) -> Answer:
        entity = asked.entity
        timeout_s = _timeout_in(asked.request)
        refusal = why_not_received_from(self._namespace, asked.address, entity)
        if refusal is None and entity.requires_session and asked.address.sub_queue == OWN:
            refusal = Refusal(NOT_ALLOWED, _NO_SESSIONS)
        if refusal is not None:
            return self._refuse(asked, refusal)
        request = asked.request
        found = await Reception(entity, asked.lane, request.caller).take(timeout_s)
        if found is None:
            return _NOTHING
        if isinstance(found, Refusal):
            status = _GONE if found.kind == ENTITY_NOT_FOUND else 0
            return self._refuse(asked, found, status)
        if request.method == "POST":
            # Nothing is awaited from here on: the client was there a moment ago, and the message
            # is written to it.
            token = uuid_of(found)
            return received(201, found, asked.location(found.sequence, str(token)))
        # It was locked and the client is still there: now it is deleted, and only then handed out,
        # so that it comes at most once. It is lost if the client goes in between (R-S1).
        origin = CommandReply()
        entity.submit(SettleMany(origin, [0], PLAIN_COMPLETE, [found], CONSUMER))
        reply = await origin.reply()
        if isinstance(reply, Refused):
            return self._refuse(asked, reply.refusal)
        return received(200, found, "")

    # --- settling

    async def _settle(self, asked: EntityRequest) -> Answer:
        place = asked.place
        if not is_guid(place.token):
            raise MalformedRequest(f"'{place.token}' is not a lock token; it must be a GUID.")
        token = token_of(UUID(place.token))
        if token.number >> LANE_BITS != asked.lane or token.sequence >= 1 << 63:
            return self._refuse(asked, await self._why_lost(asked, token))
        # The path may name the message by its number, which the token has too, or by its id.
        if place.message != str(token.sequence):
            found = await self._look_at(asked, token)
            if isinstance(found, Refusal):
                return self._refuse(asked, found)
            if found is None or message_id_of(found) != place.message:
                return self._refuse(asked, _no_message(place.message))
        method = asked.request.method
        origin = CommandReply()
        if method == "POST":
            asked.entity.submit(RenewLocks(origin, 0, [token], CONSUMER))
        else:
            settlement = PLAIN_COMPLETE if method == "DELETE" else Settlement(ABANDON)
            asked.entity.submit(SettleMany(origin, [0], settlement, [token], CONSUMER))
        reply = await origin.reply()
        if isinstance(reply, Refused):
            refusal = reply.refusal
            if refusal.kind == LOCK_LOST:
                refusal = await self._why_lost(asked, token)
            return self._refuse(asked, refusal)
        if isinstance(reply, Numbered) and reply.numbers:
            until = http_date(reply.numbers[0])
            said = f'{{"LockedUntilUtc": "{until}"}}'
            return Answer(200, {}, (("BrokerProperties", said),), content=b"")
        return _DONE

    async def _why_lost(self, asked: EntityRequest, token: LockToken) -> Refusal:
        """Tell a message that is not there any more from one whose lock is lost."""
        found = await self._look_at(asked, token)
        if isinstance(found, Delivery):
            return Refusal(LOCK_LOST, LOCK_LOST_TEXT)
        return found or _no_message(asked.place.message)

    async def _look_at(self, asked: EntityRequest, token: LockToken) -> Delivery | Refusal | None:
        """Find the message that a token is for, wherever it stands in its lane."""
        if token.sequence >= 1 << 63:
            return None
        origin = CommandReply()
        asked.entity.submit(Peek(origin, 0, asked.lane, token.sequence, 1, 1))
        reply = await origin.reply()
        if isinstance(reply, Refused):
            return reply.refusal
        assert isinstance(reply, Found), f"messages were expected, not {reply!r}"
        for found in reply.deliveries:
            if found.sequence == token.sequence:
                return found
        return None

    # --- saying no

    def _refuse(self, asked: EntityRequest, refusal: Refusal, status: int = 0) -> Answer:
        path = asked.address.path
        return self._declined(asked.request, refusal, path, asked.entity.kind, status)

    def _declined(
        self, request: HttpRequest, refusal: Refusal, path: str, kind: str, status: int = 0
    ) -> Answer:
        declined = self._refusal_writer.decline(
            refusal,
            entity=path,
            operation=f"{request.method} {request.path}",
            peer=request.peer,
            kind=kind,
        )
        return error(status or declined.status, declined.text)


def _size(messages: list[Message]) -> int:
    return sum(message.size for message in messages)


def _too_big(size_max: int) -> Refusal:
    text = f"The message is too large: the entity takes {size_max} bytes, properties included."
    return Refusal(MESSAGE_TOO_BIG, text)


def _no_message(name: str) -> Refusal:
    text = f"There is no message '{name}' with this lock token."
    return Refusal(MESSAGE_NOT_FOUND, text)


def _timeout_in(request: HttpRequest) -> int:
    """Read how long a receiver waits, in whole seconds."""
    query = request.target.partition("?")[2]
    if "timeout" not in query.lower():
        return WAIT_S_MAX
    given: list[Any] = []
    for name, values in parse_qs(query, keep_blank_values=True).items():
        if name.lower() == "timeout":
            given += values
    if not given:
        return WAIT_S_MAX
    text = given[-1]
    if not (text.isascii() and text.isdigit() and len(text) <= _WAIT_DIGITS_MAX):
        raise MalformedRequest("The parameter 'timeout' must be a whole number of seconds.")
    return min(int(text), WAIT_S_MAX)
