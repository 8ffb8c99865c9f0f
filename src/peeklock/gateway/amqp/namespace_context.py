"""What all connections to a namespace share: the broker, the keys, the limits."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol, final
from weakref import WeakKeyDictionary

from peeklock.amqp.errors import AmqpError
from peeklock.amqp.limits import ConnectionLimits
from peeklock.amqp.values.composites import encode_rejected
from peeklock.auth.keyring import KeyRing
from peeklock.auth.namespaces import Namespace, Namespaces
from peeklock.broker.entities import AttachedLink
from peeklock.clock import Clock
from peeklock.entity.commands import Command, TransactionWork
from peeklock.entity.refusals import Refusal
from peeklock.entity.topics.commands import RuleCommand
from peeklock.gateway.amqp.unsent import UnsentBudget
from peeklock.gateway.identifiers import MessageIds, RandomSource
from peeklock.gateway.quotas.connection_quota import ConnectionQuota
from peeklock.gateway.refusals import Declined, RefusalWriter


class Entity(Protocol):
    """A queue, a topic or a subscription; replies to its commands come to their origins."""

    @property
    def kind(self) -> str:
        """QUEUE, TOPIC or SUBSCRIPTION."""
        ...

    @property
    def path(self) -> str:
        """The name as its owner wrote it; of a subscription with its topic."""
        ...

    @property
    def owner_path(self) -> str:
        """The path of the queue or topic that owns the partitions: entities that share it can
        be changed together."""
        ...

    @property
    def lane(self) -> int:
        """Where its messages rest; its dead letters rest in `lane | 1`."""
        ...

    @property
    def status(self) -> str:
        """Whether it can be sent to and received from."""
        ...

    @property
    def message_size_max(self) -> int:
        """The largest message it takes."""
        ...

    @property
    def requires_session(self) -> bool:
        """Whether it can only be received from session by session."""
        ...

    @property
    def forward_to(self) -> str:
        """Where its messages go by themselves; nobody can receive them here then."""
        ...

    @property
    def wants_keys(self) -> bool:
        """Whether messages must come with their id, session and partition key read out."""
        ...

    def submit(self, command: Command | RuleCommand) -> None:
        """Ask the owner; the reply goes to the command's origin."""
        ...

    def why_not_together(self, work: list[TransactionWork]) -> Refusal | None:
        """Why these operations cannot be one transaction here, as far as their keys tell."""
        ...

    def link_attached(self, entity_link: AttachedLink) -> None:
        """A link is attached: it wants to know when it must go, and keeps the entity from being
        idle."""
        ...

    def link_detached(self, entity_link: AttachedLink) -> None:
        """A link is gone by itself."""
        ...


class Entities(Protocol):
    """Finds entities, whatever the case of their names."""

    def find(self, namespace: str, path: str) -> Entity | None:
        """Give the entity of that path (of a subscription: topic/Subscriptions/name), or None."""
        ...


class Outlet(Protocol):
    """The way to the peer: takes bytes now, sends them when it can."""

    def write(self, data: bytes) -> None:
        """Send bytes, now or when the peer takes them."""
        ...

    def close(self) -> None:
        """Close the connection when everything written is sent."""
        ...

    def hold_reading(self) -> None:
        """Take nothing more from the peer until told."""
        ...

    def resume_reading(self) -> None:
        """Take from the peer again."""
        ...

    def go_on_soon(self) -> None:
        """Ask for another pass: something is left to be written."""
        ...

    def unread(self) -> int:
        """How many bytes wait for the peer to read."""
        ...

    def abort(self, text: str = "") -> None:
        """Close the connection at once, whatever is not sent; the log has the text."""
        ...


@final
@dataclass(slots=True, init=False)
class GatewayLimits:
    """Bounds of one connection that are the gateway's, not the protocol's."""

    token_timeout_ms: Final[int]
    sessions_without_token_max: Final[int]
    links_without_token_max: Final[int]
    held_without_token_max: Final[int]
    held_bytes_max: Final[int]
    wrong_tokens_max: Final[int]
    bytes_in_flight_max: Final[int]
    delivery_bytes_max: Final[int]
    delivery_bytes_min: Final[int]
    deliveries_max: Final[int]
    handed_bytes_max: Final[int]
    responses_waiting_max: Final[int]
    transactions_max: Final[int]
    transaction_bytes_max: Final[int]

    def __init__(
        self,
        *,
        # The service drops a connection that shows no token within about 20 seconds.
        token_timeout_ms: int = 20_000,
        # Before a token there is one pair of links to `$cbs`; Java's client also has a coordinator,
        # and begins a session for each entity ahead.
        sessions_without_token_max: int = 64,
        links_without_token_max: int = 16,
        # Attaches, begun requests and unread answers of a connection without a token. A token has
        # at most 16 KB.
        held_without_token_max: int = 64 * 1024,
        # Attaches, begun messages and unread answers of one connection; beside it the largest
        # message that its links take.
        held_bytes_max: int = 64 * 1024 * 1024,
        # Tokens with a wrong signature before the first good one.
        wrong_tokens_max: int = 20,
        # Sends that wait for the store: beyond this nothing more is read from the connection. It
        # holds 64 of the largest standard messages, or 16,000 of 1 KB.
        bytes_in_flight_max: int = 16 * 1024 * 1024,
        # Deliveries asked of queues ahead of a client that may read slowly: of all its links, and
        # what each of these has at least, however many there are.
        delivery_bytes_max: int = 8 * 1024 * 1024,
        delivery_bytes_min: int = 64 * 1024,
        # The same in messages, of one link: small ones cost more than their bytes.
        deliveries_max: int = 2_048,
        # Deliveries handed to the transport beyond its high-water mark, unless one is larger.
        handed_bytes_max: int = 1024 * 1024,
        # Answers of a request node that wait for the client's credit.
        responses_waiting_max: int = 1_000,
        # Transactions of a connection that are declared and not discharged.
        transactions_max: int = 1_000,
        # Messages that wait for the end of their transactions, over the whole connection. It holds
        # two transactions of 100 of the largest standard messages.
        transaction_bytes_max: int = 64 * 1024 * 1024,
    ) -> None:
        self.token_timeout_ms = token_timeout_ms
        self.sessions_without_token_max = sessions_without_token_max
        self.links_without_token_max = links_without_token_max
        self.held_without_token_max = held_without_token_max
        self.held_bytes_max = held_bytes_max
        self.wrong_tokens_max = wrong_tokens_max
        self.bytes_in_flight_max = bytes_in_flight_max
        self.delivery_bytes_max = delivery_bytes_max
        self.delivery_bytes_min = delivery_bytes_min
        self.deliveries_max = deliveries_max
        self.handed_bytes_max = handed_bytes_max
        self.responses_waiting_max = responses_waiting_max
        self.transactions_max = transactions_max
        self.transaction_bytes_max = transaction_bytes_max


@final
class NamespaceContext:
    """The way into one namespace; every connection to it has the same."""

    __slots__ = (
        "clock",
        "connection_quota",
        "container_id",
        "engine_limits",
        "entities",
        "keys",
        "limits",
        "message_ids",
        "namespace",
        "random_source",
        "refusal_writer",
        "unsent_budget",
    )

    def __init__(
        self,
        *,
        entities: Entities,
        keys: KeyRing,
        refusal_writer: RefusalWriter,
        clock: Clock,
        random_source: RandomSource,
        namespace: str,
        container_id: str,
        engine_limits: ConnectionLimits,
        limits: GatewayLimits,
        connection_quota: ConnectionQuota | None = None,
        unsent_budget: UnsentBudget | None = None,
    ) -> None:
        self.entities = entities
        self.keys = keys
        self.refusal_writer = refusal_writer
        self.clock = clock
        self.random_source = random_source
        self.message_ids = MessageIds(random_source)
        self.namespace = namespace
        self.container_id = container_id
        self.engine_limits = engine_limits
        self.limits = limits
        self.connection_quota = connection_quota or ConnectionQuota()
        self.unsent_budget = unsent_budget or UnsentBudget()


@final
class NamespaceContexts:
    """The contexts of all namespaces; a connection has the first one until it has said which."""

    __slots__ = ("_make", "_namespace_contexts", "_namespaces", "on_keys_changed")

    def __init__(
        self, namespaces: Namespaces, make: Callable[[Namespace], NamespaceContext]
    ) -> None:
        """Contexts are made when the first connection needs them."""
        self._namespaces: Final = namespaces
        self._make: Final = make
        # A namespace that is dropped takes its context along, once its connections are gone.
        self._namespace_contexts: Final[WeakKeyDictionary[Namespace, NamespaceContext]] = (
            WeakKeyDictionary()
        )
        # Whoever has connections learns that rules of a namespace were changed.
        self.on_keys_changed: Callable[[], None] | None = None

    @property
    def first(self) -> NamespaceContext:
        """Where everybody comes to."""
        return self._of(self._namespaces.first)

    def at(self, host: str) -> NamespaceContext | None:
        """The context that a host name selects, where it names a namespace."""
        namespace = self._namespaces.at(host)
        return None if namespace is None else self._of(namespace)

    def of_token(self, token: str) -> NamespaceContext:
        """The context that a token selects."""
        return self._of(self._namespaces.of_token(token))

    def of_key(self, rule_name: str, key: str) -> NamespaceContext:
        """The context that a key selects."""
        return self._of(self._namespaces.of_key(rule_name, key))

    def _of(self, namespace: Namespace) -> NamespaceContext:
        namespace_context = self._namespace_contexts.get(namespace)
        if namespace_context is None:
            namespace_context = self._namespace_contexts[namespace] = self._make(namespace)
            namespace.keys.watch(self._keys_changed)
        return namespace_context

    def _keys_changed(self) -> None:
        if self.on_keys_changed is not None:
            self.on_keys_changed()


def amqp_error(declined: Declined) -> AmqpError:
    """Give a refusal as the protocol's error for a link that cannot be had or cannot stay."""
    return AmqpError(declined.detaching, declined.text)


def rejected(declined: Declined) -> bytes:
    """Give a refusal as the outcome of a delivery."""
    return encode_rejected(AmqpError(declined.condition, declined.text))
