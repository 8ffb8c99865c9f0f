"""The frames of the SASL layer [5.3.3]."""

from dataclasses import dataclass
from typing import Final, final

from peeklock.amqp.values.forms import field, form
from peeklock.amqp.values.types import Symbol, Ubyte


@final
@dataclass(slots=True, init=False)
class SaslMechanisms:
    """What the server offers."""

    sasl_server_mechanisms: Final[list[str]]

    def __init__(
        self,
        *,
        sasl_server_mechanisms: list[str],
    ) -> None:
        self.sasl_server_mechanisms = sasl_server_mechanisms


SASL_MECHANISMS: Final = form(
    SaslMechanisms,
    "sasl-mechanisms",
    0x40,
    field("sasl-server-mechanisms", Symbol, required=True, multiple=True),
)


@final
@dataclass(slots=True, init=False)
class SaslInit:
    """What the client chooses."""

    mechanism: Final[str]
    initial_response: Final[bytes | None]
    hostname: Final[str | None]

    def __init__(
        self,
        *,
        mechanism: str,
        initial_response: bytes | None = None,
        hostname: str | None = None,
    ) -> None:
        self.mechanism = mechanism
        self.initial_response = initial_response
        self.hostname = hostname


SASL_INIT: Final = form(
    SaslInit,
    "sasl-init",
    0x41,
    field("mechanism", Symbol, required=True),
    field("initial-response", bytes),
    field("hostname", str),
)


@final
@dataclass(slots=True, init=False)
class SaslOutcome:
    """Whether the client is let in: code 0 is yes."""

    code: Final[int]
    additional_data: Final[bytes | None]

    def __init__(
        self,
        *,
        code: int,
        additional_data: bytes | None = None,
    ) -> None:
        self.code = code
        self.additional_data = additional_data


SASL_OUTCOME: Final = form(
    SaslOutcome,
    "sasl-outcome",
    0x44,
    field("code", Ubyte, required=True),
    field("additional-data", bytes),
)
