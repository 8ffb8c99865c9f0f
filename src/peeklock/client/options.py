"""The options of the client and of what it makes, with the names of azure-servicebus."""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, TypeAlias, TypedDict, final

from peeklock.client.connections.proxy import HttpProxy
from peeklock.client.connections.retrying import RetryPolicy
from peeklock.client.constants import (
    ServiceBusReceiveMode,
    ServiceBusSessionFilter,
    ServiceBusSubQueue,
)
from peeklock.client.receiving.renewing import AutoLockRenewer
from peeklock.client.reporting import OnError
from peeklock.client.sending.batching import FLUSH_INTERVAL_S
from peeklock.client.sending.buffer import PENDING_BYTES_MAX, PENDING_MESSAGES_MAX

SessionChoice: TypeAlias = str | ServiceBusSessionFilter | None


class TransportType(StrEnum):
    """What AMQP travels in."""

    Amqp = "Amqp"
    AmqpOverWebsocket = "AmqpOverWebsocket"


class ClientOptions(TypedDict, total=False):
    """What a ServiceBusClient can be told; docs/reference/client.md explains each."""

    transport_type: TransportType | str | None
    custom_endpoint_address: str | None
    connection_verify: str | Path | None
    ssl_context: ssl.SSLContext | None
    retry_total: int
    retry_backoff_factor: float
    retry_backoff_max: float
    retry_mode: str
    try_timeout: float | None
    http_proxy: Mapping[str, Any] | None
    socket_timeout: float | None
    user_agent: str | None
    logging_enable: bool
    uamqp_transport: bool
    flush_interval: float
    max_in_flight: int | None
    max_pending_messages: int
    max_pending_bytes: int
    prefetch_count: int
    enable_cross_entity_transactions: bool


class SenderOptions(TypedDict, total=False):
    """What a sender can be told; what it is not told is as the client was told."""

    flush_interval: float | None
    max_in_flight: int | None
    max_pending_messages: int | None
    max_pending_bytes: int | None
    on_error: OnError | None
    link_properties: dict[Any, Any] | None
    client_identifier: str | None
    socket_timeout: float | None
    via: str | None


class ReceiverOptions(TypedDict, total=False):
    """What a receiver can be told; what it is not told is as the client was told."""

    session_id: SessionChoice
    sub_queue: ServiceBusSubQueue | str | None
    receive_mode: ServiceBusReceiveMode | str
    max_wait_time: float | None
    auto_lock_renewer: AutoLockRenewer | None
    prefetch_count: int | None
    flush_interval: float | None
    on_error: OnError | None
    client_identifier: str | None
    socket_timeout: float | None


class ProcessorOptions(TypedDict, total=False):
    """What a processor can be told."""

    on_error: OnError | None
    max_concurrent_calls: int
    max_concurrent_sessions: int
    auto_complete: bool
    max_auto_lock_renewal_duration: float
    session_idle_timeout: float
    receive_mode: ServiceBusReceiveMode | str
    sub_queue: ServiceBusSubQueue | str | None
    prefetch_count: int | None


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class Defaults:
    """What senders and receivers have unless they are told otherwise."""

    flush_interval: float = FLUSH_INTERVAL_S
    max_in_flight: int | None = None
    max_pending_messages: int = PENDING_MESSAGES_MAX
    max_pending_bytes: int = PENDING_BYTES_MAX
    prefetch_count: int = 0


def connection_options(given: ClientOptions) -> dict[str, Any]:
    """Return what options say of the connection, in the words of ClientConfig."""
    check_known(given, ClientOptions)
    if given.get("uamqp_transport"):
        raise ValueError(
            "uamqp_transport cannot be had: this client has an AMQP engine of its own, and no other"
        )
    proxy = given.get("http_proxy")
    return {
        "is_websocket": _is_websocket(given),
        "custom_endpoint": given.get("custom_endpoint_address"),
        "ca_file": given.get("connection_verify"),
        "ssl_context": given.get("ssl_context"),
        "is_one_session": given.get("enable_cross_entity_transactions", False),
        "proxy": None if proxy is None else HttpProxy.read(proxy),
        "socket_timeout_s": given.get("socket_timeout"),
        "user_agent": given.get("user_agent") or "",
        "is_traced": given.get("logging_enable", False),
        "retry": RetryPolicy(**_chosen(given, _RETRY)),
    }


def defaults(given: ClientOptions) -> Defaults:
    """Return what options say of senders and receivers."""
    return Defaults(**_chosen(given, _DEFAULTS))


def check_known(given: Mapping[str, Any], known: type[Any]) -> None:
    """Refuse an option that there is not, as a call with a wrong keyword is refused."""
    unknown = given.keys() - known.__annotations__.keys()
    if unknown:
        raise TypeError(f"there is no option '{min(unknown)}'")


def or_default(given: Any, default: Any) -> Any:
    """Return what was chosen, or the client's choice where nothing was."""
    return default if given is None else given


_RETRY: Final = (
    "retry_total",
    "retry_backoff_factor",
    "retry_backoff_max",
    "retry_mode",
    "try_timeout",
)
_DEFAULTS: Final = (
    "flush_interval",
    "max_in_flight",
    "max_pending_messages",
    "max_pending_bytes",
    "prefetch_count",
)


def _is_websocket(given: ClientOptions) -> bool:
    chosen = given.get("transport_type")
    if given.get("http_proxy") is not None:
        # Proxies let the web through, and hardly anything else.
        return True
    if chosen is not None:
        return TransportType(chosen) is TransportType.AmqpOverWebsocket
    # As the official client: whoever goes by another way goes by that of the web.
    return given.get("custom_endpoint_address") is not None


def _chosen(given: ClientOptions, names: tuple[str, ...]) -> dict[str, Any]:
    options: dict[str, Any] = dict(given)
    return {name: options[name] for name in names if name in options}
