"""Why something is not done, in the words and numbers of the service (protocol 9.3).

No fault of a client gets a status above 499: the clients try those again and again.
"""

from typing import Final, final

from peeklock.broker.changes import EntityError
from peeklock.broker.forwarding.destinations import DestinationMissing
from peeklock.entity.definition import QUEUE, TOPIC
from peeklock.entity.refusals import (
    ENTITY_EXISTS,
    ENTITY_NOT_FOUND,
    INVALID_ARGUMENT,
    NOT_ALLOWED,
    QUOTA_EXCEEDED,
    UNAUTHORIZED,
    UNAVAILABLE,
    Refusal,
)
from peeklock.gateway.http.admin.atom import error_answer
from peeklock.gateway.http.admin.place import (
    ENTITY,
    RULE,
    RULES,
    SUBSCRIPTION,
    SUBSCRIPTIONS,
    AdminPath,
)
from peeklock.gateway.http.answer import Answer
from peeklock.gateway.http.request import HttpRequest
from peeklock.gateway.refusals import RefusalWriter, tracker

_CHALLENGE: Final = (("www-authenticate", "SharedAccessSignature"),)
_STATUSES: Final = {
    INVALID_ARGUMENT: 400,
    NOT_ALLOWED: 400,
    UNAUTHORIZED: 401,
    QUOTA_EXCEEDED: 403,
    ENTITY_NOT_FOUND: 404,
    ENTITY_EXISTS: 409,
    UNAVAILABLE: 503,
}
_CONFLICT: Final = (
    "SubCode=40900. Conflict. You're requesting an operation that isn't allowed in the resource's "
    "current state. To know more visit https://aka.ms/sbResourceMgrExceptions. ."
)
_MISSING: Final = "SubCode=40400. Not Found. The Operation doesn't exist."
_NOBODY: Final = "No service is hosted at the specified address."


# What it takes to use queues, topics and the namespace, and how the operations on what is below a
# topic are called.
_CLAIMS: Final = {
    "GET": "Manage,EntityRead claims required for this operation.",
    "PUT": "Authorization failed for specified action: Manage,EntityWrite.",
    "DELETE": "Authorization failed for specified action: Manage,EntityDelete.",
}
_OPERATIONS: Final = {
    **{
        kind: {"GET": f"Get{word}", "PUT": f"CreateOrUpdate{word}", "DELETE": f"Delete{word}"}
        for kind, word in ((SUBSCRIPTION, "Subscription"), (RULE, "Rule"))
    },
    SUBSCRIPTIONS: {"GET": "EnumerateSubscriptions"},
    RULES: {"GET": "EnumerateRules"},
}


class NotDone(Exception):
    """A request that is declined."""

    def __init__(
        self, refusal: Refusal, status: int = 0, headers: tuple[tuple[str, str], ...] = ()
    ) -> None:
        super().__init__(refusal.text)
        self.refusal = refusal
        self.status = status or _STATUSES.get(refusal.kind, 400)
        self.headers = headers


@final
class AdminRefusals:
    """Answers what is not done, each time with a tracking id."""

    def __init__(self, refusal_writer: RefusalWriter, namespace: str) -> None:
        self._refusal_writer = refusal_writer
        self._namespace = namespace

    def answer(
        self, error: NotDone, request: HttpRequest, place: AdminPath | None, kind: str
    ) -> Answer:
        """Word a refusal; `kind` is what the entity is, where that is known."""
        declined = self._refusal_writer.decline(
            error.refusal,
            entity="" if place is None else place.entity,
            operation=f"{request.method} {request.path}",
            peer=request.peer,
            kind=kind if place is None or place.kind == ENTITY else TOPIC,
        )
        return error_answer(error.status, declined.text, error.headers)

    def of(self, error: EntityError, place: AdminPath) -> NotDone:
        """Say in the service's words why the broker declines."""
        refusal = error.refusal
        if isinstance(error, DestinationMissing):
            return NotDone(Refusal(INVALID_ARGUMENT, f"SubCode=40400. {refusal.text}"))
        if refusal.kind == ENTITY_EXISTS:
            text = f"The messaging entity '{self._tracker(place)}' already exists."
            return NotDone(Refusal(ENTITY_EXISTS, _CONFLICT if place.kind == ENTITY else text))
        if refusal.kind == ENTITY_NOT_FOUND:
            return self.missing(place)
        if refusal.kind == QUOTA_EXCEEDED:
            return NotDone(Refusal(QUOTA_EXCEEDED, f"SubCode=40300. {refusal.text}"))
        if refusal.kind in (INVALID_ARGUMENT, NOT_ALLOWED):
            return wrong(refusal.text)
        return NotDone(refusal)

    def missing(self, place: AdminPath) -> NotDone:
        """Say that something is not there."""
        text = f"Entity '{self._tracker(place)}' was not found."
        return NotDone(Refusal(ENTITY_NOT_FOUND, _MISSING if place.kind == ENTITY else text))

    def _tracker(self, place: AdminPath) -> str:
        where = tracker(self._namespace, QUEUE if place.kind == ENTITY else TOPIC, place.entity)
        return f"{where}|{place.rule}" if place.kind == RULE else where


def wrong(text: str) -> NotDone:
    """Say what is wrong with a request."""
    return NotDone(Refusal(INVALID_ARGUMENT, f"SubCode=40000. {text}"))


def nobody_there() -> NotDone:
    """Say that there is nothing to delete, or nothing that lists anything."""
    return NotDone(Refusal(ENTITY_NOT_FOUND, _NOBODY))


def unauthorized(text: str) -> NotDone:
    """Say why a request is not let in."""
    return NotDone(Refusal(UNAUTHORIZED, text), 401, _CHALLENGE)


def not_managing(request: HttpRequest, place: AdminPath | None) -> NotDone:
    """Say in the service's words that a good token does not give the right to manage."""
    verbs = _OPERATIONS.get("" if place is None else place.kind)
    if verbs is None:
        return unauthorized(_CLAIMS.get(request.method, _CLAIMS["PUT"]))
    host = request.headers.get("host", "")
    operation = verbs.get(request.method, verbs["GET"])
    return unauthorized(
        f"SubCode=40100: Unauthorized : Unauthorized access for '{operation}' operation on "
        f"endpoint 'sb://{host}{request.path}'."
    )


def out_of_reach() -> NotDone:
    """Say that the catalog cannot be written at the moment."""
    return NotDone(Refusal(UNAVAILABLE, "The catalog is out of reach. Try again later."))
