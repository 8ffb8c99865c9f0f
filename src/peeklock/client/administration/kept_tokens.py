"""Tokens of a credential that is not a connection string, kept until shortly before they end."""

from typing import Final, final

from peeklock.client.credentials import JWT_TYPE, AnyCredential, Token, credential_of
from peeklock.clock import SystemClock

# A token that ends sooner could end on its way to the broker.
_MARGIN_MS: Final = 60_000


@final
class KeptToken:
    """The token for a namespace: fetched when there is none that holds."""

    def __init__(self, host: str, credential: AnyCredential) -> None:
        self._audience = f"http://{host}/"
        self._credential = credential_of(credential)
        self._clock = SystemClock()
        self._token: Token | None = None

    @property
    def is_due(self) -> bool:
        """Whether `renew` must be awaited before the next request."""
        token = self._token
        return token is None or token.expires_at - self._clock.now() < _MARGIN_MS

    async def renew(self) -> None:
        """Ask the credential for a token."""
        self._token = await self._credential.token(self._audience, self._clock.now())

    def authorization(self, scheme: str, path: str = "") -> str:  # noqa: ARG002 - for everything
        """Return the value of the Authorization header."""
        token = self._token
        assert token is not None, "renew is awaited before"
        return f"Bearer {token.text}" if token.type == JWT_TYPE else token.text
