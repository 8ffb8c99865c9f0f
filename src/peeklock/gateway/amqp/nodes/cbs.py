"""The token node `$cbs`: clients show who they are by putting tokens (protocol 2.1)."""

from typing import Any, Final, final

from peeklock.amqp.sessions.delivery import IncomingDelivery
from peeklock.amqp.sessions.link import Link
from peeklock.amqp.values.types import Int
from peeklock.auth.keyring import TokenGrant
from peeklock.auth.refusal import INVALID_SIGNATURE, MALFORMED_TOKEN
from peeklock.auth.token_rights import TokenRights
from peeklock.entity.refusals import (
    ENTITY_NOT_FOUND,
    INVALID_ARGUMENT,
    NOT_IMPLEMENTED,
    UNAUTHORIZED,
    Refusal,
)
from peeklock.gateway.amqp.address import TOKENS, parse_address
from peeklock.gateway.amqp.connection_output import ConnectionOutput
from peeklock.gateway.amqp.management.requests import NodeRequest, encode_response, receive_request
from peeklock.gateway.amqp.management.responses import ResponseLinks
from peeklock.gateway.amqp.namespace_binding import NamespaceBinding
from peeklock.gateway.amqp.passes import TOKEN_COST, Pass
from peeklock.gateway.amqp.texts import entity_not_found

# What the service grants on its request nodes.
CREDIT: Final = 100

# The longest token four times over.
_REQUEST_SIZE_MAX: Final = 65_536

_PUT_TOKEN: Final = "put-token"
_ACCEPTED: Final = 202


@final
class TokenNode:
    """Checks tokens and keeps what they grant in the claims of the connection."""

    __slots__ = ("_binding", "_responses", "_token_rights", "lessened", "link", "output", "wrong")

    def __init__(
        self,
        output: ConnectionOutput,
        link: Link,
        responses: ResponseLinks,
        token_rights: TokenRights,
        binding: NamespaceBinding,
    ) -> None:
        self.output: Final = output
        self.link: Final = link
        self._binding: Final = binding
        self._responses: Final = responses
        self._token_rights: Final = token_rights
        # Paths on which a newer token grants less than the one before, or whose token had to give
        # way; their links are looked at.
        self.lessened: list[str] = []
        # How many tokens came that no key has signed.
        self.wrong = 0

    def open(self) -> None:
        """Attach, and take requests at once."""
        self.link.accept(max_message_size=_REQUEST_SIZE_MAX)
        self.link.grant(CREDIT)

    def transfers(self, deliveries: list[IncomingDelivery], work: Pass) -> int:
        """Answer each request; a wrong token leaves the one before it in force. Answers how many
        are done, if not all of them fit this pass."""
        done = 0
        for delivery in deliveries:
            if work.left <= 0:
                break
            done += 1
            work.left -= TOKEN_COST
            request = receive_request(self.output, self.link, delivery, self._responses, "$cbs")
            if request is not None:
                self._answer(request)
        if self.link.credit < CREDIT // 2:
            self.link.grant(CREDIT)
        return done

    def _answer(self, request: NodeRequest) -> None:
        refusal = self._put_token(request)
        if self._binding.is_over_quota:
            return  # the connection is closed, and that says why
        properties: dict[Any, Any]
        if refusal is None:
            properties = {"status-code": Int(_ACCEPTED), "status-description": "Accepted"}
        else:
            declined = self.output.namespace_context.refusal_writer.decline(
                refusal,
                entity=_missing_entity(request, refusal),
                operation="put-token",
                peer=self.output.peer_name,
            )
            # Without an error-condition: Python's client would drop status and text for it, and
            # the others know the condition by the status.
            properties = {
                "status-code": Int(declined.status),
                "status-description": declined.text,
            }
        request.responses.respond(encode_response(request, properties, None))

    def _put_token(self, request: NodeRequest) -> Refusal | None:
        """Check one token and take what it grants; answers why not."""
        operation = request.properties.get("operation")
        if operation != _PUT_TOKEN:
            return Refusal(NOT_IMPLEMENTED, f"The operation '{operation}' is not supported here.")
        audience = request.properties.get("name")
        if not isinstance(audience, str):
            return Refusal(INVALID_ARGUMENT, "The property 'name' must be the audience, a string.")
        token = request.body
        if not isinstance(token, str):
            return Refusal(INVALID_ARGUMENT, "The body must be the token, a string.")
        found = self._binding.verify(token, audience)
        if not isinstance(found, TokenGrant):
            self.wrong += found.reason == INVALID_SIGNATURE
            kind = INVALID_ARGUMENT if found.reason == MALFORMED_TOKEN else UNAUTHORIZED
            return Refusal(kind, found.text)
        if self._binding.is_over_quota:
            return None
        # Only now: whether an entity exists is told to nobody who has no key to it.
        missing = self._missing(audience)
        ended = self._token_rights.put(found) if missing is None else None
        if ended is not None:
            self.lessened.append(ended)
        return missing

    def _missing(self, audience: str) -> Refusal | None:
        address = parse_address(audience)
        if address.kind == TOKENS or not address.path:
            return None
        namespace_context = self.output.namespace_context
        if namespace_context.entities.find(namespace_context.namespace, address.path) is not None:
            return None
        return Refusal(ENTITY_NOT_FOUND, entity_not_found(self.output.host, address.path))


def _missing_entity(request: NodeRequest, refusal: Refusal) -> str:
    """Name the entity that a good token is for and that is not there."""
    audience = request.properties.get("name")
    if refusal.kind != ENTITY_NOT_FOUND or not isinstance(audience, str):
        return ""
    return parse_address(audience).path
