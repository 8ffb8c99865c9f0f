"""Who may manage: the token of a request, and those that it brings for destinations."""

from typing import final

from peeklock.auth.keyring import KeyRing, TokenGrant
from peeklock.auth.rights import MANAGE, SEND, allows
from peeklock.clock import Clock
from peeklock.gateway.http.admin.refusals import unauthorized
from peeklock.gateway.http.request import HttpRequest


@final
class Admission:
    """Checks tokens as `$cbs` does."""

    def __init__(self, keys: KeyRing, clock: Clock) -> None:
        self._keys = keys
        self._clock = clock

    def may_manage(self, request: HttpRequest) -> bool:
        """Tell whether the token gives the right to manage the entity in the path, or the
        namespace; without a good token nobody is told anything.

        Some clients sign the path that they ask, lists among it, and so it is the audience.
        """
        token = request.headers.get("authorization")
        if token is None:
            raise unauthorized("MissingToken: The authorization header was not found.")
        return allows(self._grant(request, token, request.path).rights, MANAGE)

    def check_destination(self, request: HttpRequest, header: str, path: str) -> None:
        """Let forward who may send to the destination: by a token for it, or by the request's."""
        token = request.headers.get(header) or request.headers.get("authorization") or ""
        found = self._grant(request, token, path)
        if not allows(found.rights, SEND):
            raise unauthorized(
                f"Unauthorized access. 'Send' claim is empty: the rule '{found.rule_name}' does "
                "not give it."
            )

    def _grant(self, request: HttpRequest, token: str, audience: str) -> TokenGrant:
        now = self._clock.wall()
        found = self._keys.verify(token, audience, now, is_exposed=request.is_exposed)
        if not isinstance(found, TokenGrant):
            raise unauthorized(found.text)
        return found
