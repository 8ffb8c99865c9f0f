"""Who a client is: a key, a token made of one, or an object that gets tokens from elsewhere."""

import asyncio
import inspect
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias, final, runtime_checkable

from peeklock.auth.refusal import AuthRefusal
from peeklock.auth.sas import generate_sas, parse_sas
from peeklock.client.connections.connection_string import TOKEN_MS

SAS_TYPE: Final = "servicebus.windows.net:sastoken"
JWT_TYPE: Final = "jwt"
# What tokens of Azure's identity service are asked for.
AZURE_SCOPE: Final = "https://servicebus.azure.net//.default"


@final
@dataclass(frozen=True, slots=True)
class Token:
    """What is shown to the broker, of which type, and until when it holds."""

    text: str
    type: str
    expires_at: int
    # Whether asking again gives another one, that holds longer.
    is_renewable: bool = True

    def __repr__(self) -> str:
        # Written out so that no token reaches a log or a traceback.
        return f"Token({self.type!r}, expires_at={self.expires_at})"


class Credential(Protocol):
    """Makes tokens."""

    async def token(self, audience: str, now: int) -> Token:
        """Return a token for an entity, `sb://host/path`."""
        ...


@runtime_checkable
class AsyncTokenCredential(Protocol):
    """The shape of azure-identity's credentials; those that do not await are taken as well."""

    def get_token(self, *scopes: str, **options: Any) -> Any:
        """Give, or let be awaited, something with `token` and `expires_on` (seconds)."""
        ...


@runtime_checkable
class NamedKey(Protocol):
    """The shape of azure-core's AzureNamedKeyCredential."""

    @property
    def named_key(self) -> Any:
        """The rule's name and its key."""
        ...


@runtime_checkable
class Signature(Protocol):
    """The shape of azure-core's AzureSasCredential."""

    @property
    def signature(self) -> str:
        """The token."""
        ...


AnyCredential: TypeAlias = Credential | AsyncTokenCredential | NamedKey | Signature


@final
class SasKey:
    """A rule's name and key; tokens are signed here."""

    def __init__(self, rule_name: str, key: str, *, token_ms: int = TOKEN_MS) -> None:
        self.rule_name = rule_name
        self._key = key
        self._token_ms = token_ms

    def __repr__(self) -> str:
        return f"SasKey({self.rule_name!r})"

    async def token(self, audience: str, now: int) -> Token:
        """Sign a token."""
        # A token tells its end in whole seconds; cut, it would end before we know.
        expires_at = -(-(now + self._token_ms) // 1000) * 1000
        text = generate_sas(audience, self.rule_name, self._key, expires_at)
        return Token(text, SAS_TYPE, expires_at)


@final
class SasToken:
    """A token that somebody signed; it cannot be renewed."""

    def __init__(self, text: str) -> None:
        found = parse_sas(text)
        if isinstance(found, AuthRefusal):
            raise ValueError(f"the shared access signature cannot be read: {found.text}")
        self._text = text
        self._expires_at = found.expires_at

    def __repr__(self) -> str:
        return f"SasToken(expires_at={self._expires_at})"

    async def token(self, audience: str, now: int) -> Token:  # noqa: ARG002
        """Return the one there is."""
        return Token(self._text, SAS_TYPE, self._expires_at, is_renewable=False)


@final
class ChangingCredential:
    """A key or a token in an object of azure-core's, whose owner may put another one into it."""

    def __init__(self, inner: NamedKey | Signature) -> None:
        self._inner = inner
        # What cannot be used is told to whoever gives it.
        self._now()

    async def token(self, audience: str, now: int) -> Token:
        """Make a token of what is in it now; by the time it ends, there may be another one."""
        token = await self._now().token(audience, now)
        return Token(token.text, token.type, token.expires_at)

    def _now(self) -> SasKey | SasToken:
        inner = self._inner
        if isinstance(inner, NamedKey):
            name, key = inner.named_key
            return SasKey(name, key)
        return SasToken(inner.signature)


@final
class IdentityCredential:
    """Tokens of Azure's identity service, by an object in the shape of azure-identity's."""

    def __init__(self, inner: AsyncTokenCredential) -> None:
        self._inner = inner

    async def token(self, audience: str, now: int) -> Token:  # noqa: ARG002
        """Ask for a token; it holds for the whole namespace."""
        ask = self._inner.get_token
        if inspect.iscoroutinefunction(ask):
            found = await ask(AZURE_SCOPE)
        else:
            # It waits for the network, and the loop has other things to do.
            found = await asyncio.to_thread(ask, AZURE_SCOPE)
            if inspect.isawaitable(found):
                found = await found
        return Token(str(found.token), JWT_TYPE, int(found.expires_on) * 1000)


def credential_of(given: AnyCredential) -> Credential:
    """Make one of ours of a credential in the shape of azure-identity's or azure-core's."""
    if isinstance(given, AsyncTokenCredential):
        return IdentityCredential(given)
    if isinstance(given, (NamedKey, Signature)):
        return ChangingCredential(given)
    return given
