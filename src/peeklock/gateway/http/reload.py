"""The configuration, read again when somebody asks who manages the first namespace."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias, final

from peeklock.auth.rights import MANAGE
from peeklock.gateway import logbook
from peeklock.gateway.http.answer import Answer, not_allowed, not_found, refused
from peeklock.gateway.http.request import HttpRequest
from peeklock.gateway.http.token_guard import TokenGuard

NODE: Final = "$reload"

_LOG: Final = logging.getLogger("peeklock.server")


@final
@dataclass(frozen=True, slots=True)
class Reloaded:
    """What is different now, and what only a restart would change."""

    changed: Sequence[str]
    restart: Sequence[str]


class NotReloaded(Exception):
    """Something is wrong in the file, or with it; the text says what."""


Reloading: TypeAlias = Callable[[], Awaitable[Reloaded]]
"""Reloads, or raises NotReloaded."""


@final
class ReloadNode:
    """Answers `POST /$reload`."""

    def __init__(self, reload: Reloading, guard: TokenGuard) -> None:
        self._reload = reload
        self._guard = guard

    async def answer(self, request: HttpRequest) -> Answer:
        """Answer a request at `/$reload`."""
        refusal = self._guard.check(request, "", MANAGE)
        if refusal is not None:
            return refusal
        if len(request.segments()) > 1:
            return not_found(request.path)
        if request.method != "POST":
            return not_allowed(request.method, ["POST"])
        try:
            reloaded = await logged(self._reload)
        except NotReloaded as problem:
            return refused(409, str(problem))
        return Answer(200, {"changed": list(reloaded.changed), "restart": list(reloaded.restart)})


async def logged(reload: Reloading) -> Reloaded:
    """Reload and write down what came of it, whoever asked."""
    try:
        reloaded = await reload()
    except NotReloaded as problem:
        _LOG.error("%s", logbook.line("not-reloaded", text=str(problem)))
        raise
    for change in reloaded.changed:
        _LOG.info("%s", logbook.line("reload-changed", text=change))
    for change in reloaded.restart:
        _LOG.warning("%s", logbook.line("reload-needs-restart", text=change))
    _LOG.info("%s", logbook.line("reloaded", changed=len(reloaded.changed)))
    return reloaded
