"""A key that is shown by SASL PLAIN: looked at, or kept waiting where many wrong ones came."""

from typing import Final, final

from peeklock.amqp.events import SaslInitReceived
from peeklock.amqp.sasl import read_plain
from peeklock.auth.refusal import AuthRefusal
from peeklock.gateway.amqp.namespace_binding import NamespaceBinding
from peeklock.gateway.quotas.wrong_key_throttle import WrongKeyThrottle

NO_DEADLINE: Final = 1 << 62

_TOO_MANY_KEYS: Final = "Too many wrong keys came from this address; try again later."


@final
class ShownKey:
    """The key of one connection."""

    __slots__ = ("_address", "_binding", "_waiting", "_wrong_keys", "due")

    def __init__(
        self, binding: NamespaceBinding, wrong_keys: WrongKeyThrottle, address: str
    ) -> None:
        self._binding: Final = binding
        self._wrong_keys: Final = wrong_keys
        self._address: Final = address
        # A key that waits for its turn, because its address has shown many wrong ones.
        self._waiting: SaslInitReceived | None = None
        # When that turn comes, by the loop's time.
        self.due = NO_DEADLINE

    @property
    def is_waiting(self) -> bool:
        """Whether a key was shown and not looked at."""
        return self._waiting is not None

    def show(self, event: SaslInitReceived, at: int) -> AuthRefusal | None:
        """Look at a key, or let it wait; answers why it opens nothing."""
        wait_ms = self._wrong_keys.wait_ms(self._address, at)
        if wait_ms < 0:
            return AuthRefusal("TooManyKeys", _TOO_MANY_KEYS)
        if wait_ms:
            self._waiting = event
            self.due = at + wait_ms
            return None
        refusal = self._look_at(event)
        if refusal is not None:
            self._wrong_keys.missed(self._address, at)
        return refusal

    def take_turn(self) -> AuthRefusal | None:
        """Look at the key that has waited."""
        event = self._waiting
        self.give_up()
        return None if event is None else self._look_at(event)

    def give_up(self) -> None:
        """Wait no more."""
        if self._waiting is not None:
            self._waiting = None
            self.due = NO_DEADLINE
            self._wrong_keys.waited()

    def _look_at(self, event: SaslInitReceived) -> AuthRefusal | None:
        credential = read_plain(event.initial_response)
        if credential is None:
            return AuthRefusal("MalformedCredential", "The PLAIN credential cannot be read.")
        return self._binding.show_key(credential[0], credential[1], event.hostname or "")
