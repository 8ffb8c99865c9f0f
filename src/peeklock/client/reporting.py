"""Futures that know whether somebody waits for them, so that no failure is lost."""

import asyncio
import logging
import weakref
from collections.abc import Callable, Generator
from typing import Any, Final, TypeAlias, final

# Told of a failure that nobody waits for: what was to be sent or completed, and why it was not.
OnError: TypeAlias = Callable[[Any, Exception], None]

_LOG: Final = logging.getLogger("peeklock.client")
# Enough to see what is wrong; the others are counted.
_KEPT_MAX: Final = 100


@final
class Outcome(asyncio.Future[None]):
    """The outcome of something that was asked for and not waited for; it can be awaited later."""

    # Whether somebody has asked, or will be told: then the failure is theirs.
    is_taken: bool = False

    def __await__(self) -> Generator[Any, None, None]:
        self.is_taken = True
        return super().__await__()

    __iter__ = __await__

    def result(self) -> None:
        """Give nothing, or raise what went wrong."""
        self.is_taken = True
        return super().result()

    def exception(self) -> BaseException | None:
        """Return what went wrong."""
        self.is_taken = True
        return super().exception()

    def add_done_callback(self, function: Any, *, context: Any = None) -> None:
        """Let a function be called when the outcome is known."""
        self.is_taken = True
        super().add_done_callback(function, context=context)

    def succeed(self) -> None:
        """Tell that it was done, unless nobody wants to know."""
        if not self.done():
            self.set_result(None)


@final
class Reporting:
    """Where failures go: to who waits, else to a callback, else to the loop and to `raise_first`.

    The loop is told by asyncio itself, when a future with an exception is dropped that was not
    looked at.
    """

    def __init__(self, on_error: OnError | None = None) -> None:
        self._on_error = on_error
        self._kept: list[tuple[weakref.ref[Outcome], Exception]] = []
        # Those beyond what is kept, and what the first of them said.
        self._beyond: list[weakref.ref[Outcome]] = []
        self._first_beyond: Exception | None = None

    def fail(self, outcome: Outcome, subject: Any, error: Exception) -> None:
        """Tell that something failed."""
        if outcome.done():
            # Cancelled: whoever did it does not wait, and yet a failure is one.
            if self._on_error is not None:
                self._tell(subject, error)
            return
        outcome.set_exception(error)
        if outcome.is_taken:
            return
        if self._on_error is not None:
            self._tell(subject, error)
            outcome.exception()
            return
        # Without the frames that it passed, which hold the outcome: it must be dropped with its
        # last user, because that is when the loop is told.
        error.with_traceback(None)
        if len(self._kept) < _KEPT_MAX:
            self._kept.append((weakref.ref(outcome), error))
        else:
            self._beyond.append(weakref.ref(outcome))
            self._first_beyond = self._first_beyond or error

    def _tell(self, subject: Any, error: Exception) -> None:
        assert self._on_error is not None
        try:
            self._on_error(subject, error)
        except Exception:  # noqa: BLE001  told to the log, with all that it says
            # A callback that fails must not stop what others wait for.
            _LOG.exception("the on_error callback failed while it was told of: %r", error)

    def raise_first(self) -> None:
        """Raise the first failure that nobody was told of; the others are noted on it."""
        kept, self._kept = self._kept, []
        beyond, self._beyond = self._beyond, []
        first_beyond, self._first_beyond = self._first_beyond, None
        left = [error for reference, error in kept if _is_left(reference())]
        count = len(left) + sum(_is_left(reference()) for reference in beyond)
        first = left[0] if left else first_beyond
        if count == 0 or first is None:
            return
        if count > 1:
            first.add_note(f"and {count - 1} more that nobody waited for")
        raise first


def _is_left(outcome: Outcome | None) -> bool:
    """Return whether nobody waited for it; the loop need not be told of it any more."""
    if outcome is None:
        return True
    is_left = not outcome.is_taken
    outcome.exception()
    return is_left
