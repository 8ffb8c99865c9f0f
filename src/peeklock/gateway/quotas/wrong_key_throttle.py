"""Wrong keys by SASL PLAIN: counted by address, and slowed down where there are many.

Each address may be wrong now and then. Beyond that its next tries wait for their turn, right or
wrong, so that a key cannot be guessed by trying fast; other addresses notice nothing.
"""

from typing import Final, final

from peeklock.budgets import Budget

# So many wrong keys of an address are looked at at once, and so much later each further one.
FREE_MAX: Final = 50
PAUSE_MS: Final = 200
# Nobody waits longer than this for a turn; who would have to is refused unseen.
WAIT_MS_MAX: Final = 10_000
# Addresses that are remembered; the one that was wrong longest ago is forgotten first.
ADDRESSES_MAX: Final = 10_000


@final
class WrongKeyThrottle:
    """When an address has its next try; instants are the loop's, in milliseconds."""

    def __init__(self, waiting: Budget) -> None:
        # Those that wait for their turn; refused are those who would wait too long.
        self._waiting: Final = waiting
        # When the next try of an address would be due if every wrong one took its pause.
        self._turns: Final[dict[str, int]] = {}

    def wait_ms(self, address: str, at: int) -> int:
        """Tell how long a try has to wait, -1 for too long; one that waits has taken its turn."""
        behind = self._turns.get(address, at) - at - FREE_MAX * PAUSE_MS
        if behind <= 0:
            return 0
        if behind > WAIT_MS_MAX or not self._waiting.take(1):
            if behind > WAIT_MS_MAX:
                self._waiting.refused += 1
            return -1
        self._missed(address, at)
        return behind

    def waited(self) -> None:
        """Somebody's turn has come, or it is gone."""
        self._waiting.give_back(1)

    def missed(self, address: str, at: int) -> None:
        """Count a wrong key that did not have to wait."""
        self._missed(address, at)

    def _missed(self, address: str, at: int) -> None:
        turn = max(at, self._turns.pop(address, at))
        self._turns[address] = turn + PAUSE_MS
        if len(self._turns) > ADDRESSES_MAX:
            del self._turns[next(iter(self._turns))]
