"""Who may manage: the token of a request, and those that it brings for destinations."""

from collections.abc import Callable
from typing import final

from peeklock.auth.keyring import Grant, KeyRing
from peeklock.auth.rights import MANAGE, SEND, Rights, allows, rights_names
from peeklock.clock import Clock
from peeklock.gateway.http.admin.refusals import unauthorized
from peeklock.gateway.http.request import Request


@final
class Admission:
    """Checks tokens as `$cbs` does."""

    def __init__(self, keys: KeyRing, clock: Clock, is_host: Callable[[str], bool]) -> None:
        """`is_host` tells whether a name means the namespace, and no entity of it."""
        self._keys = keys
        self._clock = clock
        self._is_host = is_host

    def check(self, request: Request) -> None:
        """Let in who manages the entity in the path, or the namespace.

        Some clients sign the path that they ask, lists among it, and so it is the audience.
        """
        token = request.headers.get("authorization")
        if token is None:
            raise unauthorized("MissingToken: The authorization header was not found.")
        self._check(token, request.path, MANAGE)

    def check_destination(self, request: Request, header: str, path: str) -> None:
        """Let forward who may send to the destination: by a token for it, or by the request's."""
        token = request.headers.get(header) or request.headers.get("authorization") or ""
        # The client for JavaScript signs the host alone here, which may look like a path. What the
        # request calls its host says nothing: then a token for any entity would be one for all.
        self._check(token, path, SEND, self._is_host)

    def _check(
        self,
        token: str,
        audience: str,
        wanted: Rights,
        is_host: Callable[[str], bool] | None = None,
    ) -> None:
        found = self._keys.verify(token, audience, self._clock.wall(), is_host)
        if not isinstance(found, Grant):
            raise unauthorized(found.text)
        if not allows(found.rights, wanted):
            names = ",".join(rights_names(wanted))
            raise unauthorized(
                f"Unauthorized access. '{names}' claim is empty: the rule '{found.rule_name}' "
                "does not give it."
            )
