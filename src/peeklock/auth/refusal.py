"""Why somebody was not let in; a value, so that AMQP and HTTP can each translate it."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, final

from peeklock.clock import Instant

MALFORMED_TOKEN: Final = "MalformedToken"
UNSUPPORTED_TOKEN: Final = "UnsupportedToken"
INVALID_SIGNATURE: Final = "InvalidSignature"
EXPIRED_TOKEN: Final = "ExpiredToken"
INVALID_AUDIENCE: Final = "InvalidAudience"
NO_ROLE: Final = "NoRole"
EXPOSED_TOKEN: Final = "ExposedToken"


@final
@dataclass(frozen=True, slots=True)
class AuthRefusal:
    """A credential that was declined; the text begins with the reason and holds no secret."""

    reason: str
    text: str


def malformed(what: str) -> AuthRefusal:
    """Decline what is not a token at all."""
    return AuthRefusal(MALFORMED_TOKEN, f"MalformedToken: The token cannot be read: {what}.")


def unsupported_jwt() -> AuthRefusal:
    """Decline a JSON web token, for which there is no issuer to ask."""
    return AuthRefusal(
        UNSUPPORTED_TOKEN,
        "UnsupportedToken: This namespace has no token issuer and takes no JSON web tokens (JWT); "
        "name one as TokenIssuers in the configuration, or use a shared access key or signature.",
    )


def untrusted(what: str) -> AuthRefusal:
    """Decline a JSON web token, and say what about it is not believed."""
    return AuthRefusal(INVALID_SIGNATURE, f"InvalidToken: The token is not believed: {what}.")


def without_role(subject: str) -> AuthRefusal:
    """Decline a JSON web token that is good and gives nothing."""
    return AuthRefusal(
        NO_ROLE,
        f"Unauthorized: The token of '{subject}' gives no right: its claim 'roles' names no role "
        "that is worth one in this namespace.",
    )


def exposed() -> AuthRefusal:
    """Decline a JSON web token that came as others on the network can read it."""
    return AuthRefusal(
        EXPOSED_TOKEN,
        "ExposedToken: A JSON web token is taken over TLS, or from the broker's own machine; "
        "'AllowPlain' of the token issuer in the configuration allows others.",
    )


def too_long(hours: int) -> AuthRefusal:
    """Decline a JSON web token that would be good for longer than we believe anybody."""
    return AuthRefusal(
        EXPIRED_TOKEN, f"InvalidToken: The token is good for more than {hours} hours from now."
    )


def not_yet(begins_at: Instant) -> AuthRefusal:
    """Decline a token whose time has not come."""
    return AuthRefusal(
        EXPIRED_TOKEN, f"NotYetValid: The token is good from '{iso_instant(begins_at)}' on."
    )


def invalid_signature() -> AuthRefusal:
    """Decline a token that no key of such a rule has signed; whether there is one is not told."""
    return AuthRefusal(INVALID_SIGNATURE, "InvalidSignature: The token has an invalid signature.")


def invalid_key() -> AuthRefusal:
    """Decline a name and a key that do not belong together, whichever of them is wrong."""
    return AuthRefusal(
        INVALID_SIGNATURE, "InvalidSignature: There is no such rule, or the key is not its key."
    )


def expired(expires_at: Instant) -> AuthRefusal:
    """Decline a token whose time is over, and say since when."""
    return AuthRefusal(
        EXPIRED_TOKEN,
        f"ExpiredToken: The token is expired. Expiration time: '{iso_instant(expires_at)}'.",
    )


def invalid_audience(resource: str, audience: str) -> AuthRefusal:
    """Decline a token that was made for something else."""
    return AuthRefusal(
        INVALID_AUDIENCE,
        f"InvalidAudience: The token is for '/{resource}', which does not cover '/{audience}'.",
    )


def iso_instant(instant: Instant) -> str:
    """Write an instant as people read it, in UTC with seconds."""
    moment = datetime.fromtimestamp(instant // 1000, tz=UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
