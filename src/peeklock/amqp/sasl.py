"""The SASL layer: what a server offers, what a client presents, and the verdict [5.3].

Only mechanisms that need one message from the client are spoken. No official client can answer a
challenge, and none is ever sent.
"""

from dataclasses import dataclass
from typing import Final, final

from peeklock.amqp.errors import UNAUTHORIZED_ACCESS, ProtocolError
from peeklock.amqp.frames.headers import HEAD_SIZE, SASL_FRAME, frame_head
from peeklock.amqp.frames.sasl_frames import SaslInit, SaslMechanisms, SaslOutcome
from peeklock.amqp.values.composites import encode_composite

ANONYMOUS: Final = "ANONYMOUS"
EXTERNAL: Final = "EXTERNAL"
MSSBCBS: Final = "MSSBCBS"
PLAIN: Final = "PLAIN"

# Verdicts [5.3.3.6].
OUTCOME_OK: Final = 0
OUTCOME_AUTH: Final = 1


@final
@dataclass(slots=True, init=False)
class SaslCredential:
    """What a client presents: a mechanism and its one message."""

    mechanism: Final[str]
    initial_response: Final[bytes]

    def __init__(self, mechanism: str, initial_response: bytes) -> None:
        self.mechanism = mechanism
        self.initial_response = initial_response


def anonymous() -> SaslCredential:
    """Present nobody; a token may follow on `$cbs`."""
    return SaslCredential(ANONYMOUS, b"")


def plain(user: str, password: str) -> SaslCredential:
    """Present a name and a password [RFC 4616]."""
    return SaslCredential(PLAIN, b"\x00" + user.encode() + b"\x00" + password.encode())


def external() -> SaslCredential:
    """Present what the transport knows already, a client certificate say."""
    return SaslCredential(EXTERNAL, b"")


def read_plain(initial_response: bytes) -> tuple[str, str] | None:
    """Read name and password out of a PLAIN message, or None when it is not one."""
    fields = initial_response.split(b"\x00")
    if len(fields) != 3:
        return None
    try:
        return fields[1].decode(), fields[2].decode()
    except UnicodeDecodeError:
        return None


def write_mechanisms(mechanisms: list[str]) -> bytes:
    """Write the frame with which a server offers its mechanisms."""
    return _frame(encode_composite(SaslMechanisms(sasl_server_mechanisms=mechanisms)))


def write_init(credential: SaslCredential, hostname: str | None) -> bytes:
    """Write the frame with which a client presents itself."""
    return _frame(
        encode_composite(
            SaslInit(
                mechanism=credential.mechanism,
                initial_response=credential.initial_response,
                hostname=hostname,
            )
        )
    )


def write_outcome(code: int) -> bytes:
    """Write the frame with a server's verdict."""
    return _frame(encode_composite(SaslOutcome(code=code)))


def check_offer(credential: SaslCredential, offered: SaslMechanisms) -> None:
    """Refuse a server that does not offer what we present."""
    names = offered.sasl_server_mechanisms
    if credential.mechanism not in names:
        raise ProtocolError(
            UNAUTHORIZED_ACCESS,
            f"the server offers {', '.join(names)} and not {credential.mechanism}",
        )


def check_outcome(outcome: SaslOutcome) -> None:
    """Refuse to go on after a verdict that is not a yes."""
    if outcome.code != OUTCOME_OK:
        raise ProtocolError(
            UNAUTHORIZED_ACCESS, f"the server refused the credential with code {outcome.code}"
        )


def _frame(performative: bytes) -> bytes:
    return frame_head(HEAD_SIZE + len(performative), 0, SASL_FRAME) + performative
