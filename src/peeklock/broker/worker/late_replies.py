"""Replies that somebody gives in place of a partition."""

from __future__ import annotations

import asyncio
import logging
from typing import Final, final

from peeklock.entity.replies import Origin, Reply

_log: Final = logging.getLogger("peeklock.broker")


@final
class LateReplies:
    """Hands replies out soon, as a partition would, and never while being asked."""

    __slots__ = ("_replies", "_whose")

    def __init__(self, whose: str) -> None:
        """`whose` says in the log in whose place they are given."""
        self._whose: Final[str] = whose
        self._replies: list[Reply] = []

    def add(self, reply: Reply) -> None:
        """Hand a reply out with the others of this turn."""
        self._replies.append(reply)
        if len(self._replies) == 1:
            asyncio.get_running_loop().call_soon(self._hand_out)

    def _hand_out(self) -> None:
        replies = self._replies
        self._replies = []
        origins: dict[Origin, bool] = {}
        for reply in replies:
            origin = reply.origin
            origins[origin] = True
            try:
                origin.replied(reply)
            except Exception:  # noqa: BLE001 - one origin's fault must not stop the others
                _log.exception("reply-failed %s", self._whose)
        for origin in origins:
            try:
                origin.flush()
            except Exception:  # noqa: BLE001 - one origin's fault must not stop the others
                _log.exception("reply-failed %s", self._whose)
