"""Who may ask over HTTP: a shared access signature in the Authorization header says it."""

from typing import Final, final

from peeklock.auth.keyring import KeyRing, TokenGrant
from peeklock.auth.rights import Rights, allows, rights_names
from peeklock.clock import Clock
from peeklock.entity.refusals import UNAUTHORIZED, Refusal
from peeklock.gateway.http.answer import Answer
from peeklock.gateway.http.request import HttpRequest
from peeklock.gateway.refusals import RefusalWriter

_CHALLENGE: Final = (("www-authenticate", "SharedAccessSignature"),)


@final
class TokenGuard:
    """Checks the token of a request as `$cbs` does, and refuses with a tracking id."""

    def __init__(self, keys: KeyRing, clock: Clock, refusal_writer: RefusalWriter) -> None:
        self._keys = keys
        self._clock = clock
        self._refusal_writer = refusal_writer

    def check(self, request: HttpRequest, audience: str, wanted: Rights) -> Answer | None:
        """Answer why a request is not let in, None when it is; the namespace is the path ''."""
        token = request.headers.get("authorization")
        if token is None:
            text = "The request has no Authorization header with a shared access signature."
            return self._refuse(request, 401, text)
        now = self._clock.wall()
        found = self._keys.verify(token, audience, now, is_exposed=request.is_exposed)
        if not isinstance(found, TokenGrant):
            return self._refuse(request, 401, found.text)
        if not allows(found.rights, wanted):
            names = "', '".join(rights_names(wanted))
            text = f"The rule '{found.rule_name}' does not give the right '{names}'."
            return self._refuse(request, 403, text)
        return None

    def _refuse(self, request: HttpRequest, status: int, text: str) -> Answer:
        operation = f"{request.method} {request.path}"
        declined = self._refusal_writer.decline(
            Refusal(UNAUTHORIZED, text), entity="", operation=operation, peer=request.peer
        )
        headers = _CHALLENGE if status == 401 else ()
        return Answer(status, {"error": declined.text}, headers)
