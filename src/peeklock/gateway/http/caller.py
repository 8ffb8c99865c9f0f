"""Whether the client of a request still waits for its answer."""

from collections.abc import Callable
from typing import final


@final
class Caller:
    """The other end, for those who must know when it is gone.

    A client that has closed its sending side counts as gone: it cannot be told from one that has
    closed everything, and what nobody takes must not be handed out.
    """

    def __init__(self, *, is_gone: bool = False) -> None:
        self.is_gone = is_gone
        self._on_gone: Callable[[], None] | None = None

    def when_gone(self, call: Callable[[], None] | None) -> None:
        """Have something called when the client goes, once; None forgets it."""
        self._on_gone = call

    def left(self) -> None:
        """The client is gone."""
        self.is_gone = True
        call = self._on_gone
        self._on_gone = None
        if call is not None:
            call()
