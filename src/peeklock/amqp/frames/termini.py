"""The two ends of a link [3.5]."""

from dataclasses import dataclass
from typing import Any, Final, final

from peeklock.amqp.values.forms import ANY, field, form
from peeklock.amqp.values.types import Symbol, Uint


@final
@dataclass(slots=True, init=False)
class Source:
    """Where messages of a link come from [3.5.3]."""

    address: Final[Any]
    durable: Final[int]
    expiry_policy: Final[str]
    timeout: Final[int]
    dynamic: Final[bool]
    dynamic_node_properties: Final[dict[Any, Any] | None]
    distribution_mode: Final[str | None]
    filter: Final[dict[Any, Any] | None]
    default_outcome: Final[Any]
    outcomes: Final[list[str] | None]
    capabilities: Final[list[str] | None]

    def __init__(
        self,
        *,
        address: Any = None,
        durable: int = 0,
        expiry_policy: str = "session-end",
        timeout: int = 0,
        dynamic: bool = False,
        dynamic_node_properties: dict[Any, Any] | None = None,
        distribution_mode: str | None = None,
        filter: dict[Any, Any] | None = None,
        default_outcome: Any = None,
        outcomes: list[str] | None = None,
        capabilities: list[str] | None = None,
    ) -> None:
        self.address = address
        self.durable = durable
        self.expiry_policy = expiry_policy
        self.timeout = timeout
        self.dynamic = dynamic
        self.dynamic_node_properties = dynamic_node_properties
        self.distribution_mode = distribution_mode
        self.filter = filter
        self.default_outcome = default_outcome
        self.outcomes = outcomes
        self.capabilities = capabilities


SOURCE: Final = form(
    Source,
    "source",
    0x28,
    field("address", ANY),
    field("durable", Uint, default=0),
    field("expiry-policy", Symbol, default="session-end"),
    field("timeout", Uint, default=0),
    field("dynamic", bool, default=False),
    field("dynamic-node-properties", dict),
    field("distribution-mode", Symbol),
    field("filter", dict),
    field("default-outcome", ANY),
    field("outcomes", Symbol, multiple=True),
    field("capabilities", Symbol, multiple=True),
)


@final
@dataclass(slots=True, init=False)
class Target:
    """Where messages of a link go [3.5.4]."""

    address: Final[Any]
    durable: Final[int]
    expiry_policy: Final[str]
    timeout: Final[int]
    dynamic: Final[bool]
    dynamic_node_properties: Final[dict[Any, Any] | None]
    capabilities: Final[list[str] | None]

    def __init__(
        self,
        *,
        address: Any = None,
        durable: int = 0,
        expiry_policy: str = "session-end",
        timeout: int = 0,
        dynamic: bool = False,
        dynamic_node_properties: dict[Any, Any] | None = None,
        capabilities: list[str] | None = None,
    ) -> None:
        self.address = address
        self.durable = durable
        self.expiry_policy = expiry_policy
        self.timeout = timeout
        self.dynamic = dynamic
        self.dynamic_node_properties = dynamic_node_properties
        self.capabilities = capabilities


TARGET: Final = form(
    Target,
    "target",
    0x29,
    field("address", ANY),
    field("durable", Uint, default=0),
    field("expiry-policy", Symbol, default="session-end"),
    field("timeout", Uint, default=0),
    field("dynamic", bool, default=False),
    field("dynamic-node-properties", dict),
    field("capabilities", Symbol, multiple=True),
)


@final
@dataclass(slots=True, init=False)
class Coordinator:
    """A target that declares and discharges transactions [4.5.1]."""

    capabilities: Final[list[str] | None]

    def __init__(
        self,
        *,
        capabilities: list[str] | None = None,
    ) -> None:
        self.capabilities = capabilities


COORDINATOR: Final = form(
    Coordinator,
    "coordinator",
    0x30,
    field("capabilities", Symbol, multiple=True),
)
