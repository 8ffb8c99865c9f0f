"""The official administration client of Python, in both flavours."""

from collections.abc import AsyncIterator, Callable
from typing import Any

from azure.servicebus.aio.management import (
    ServiceBusAdministrationClient as AsyncAdministrationClient,
)
from azure.servicebus.management import ServiceBusAdministrationClient

from tests.wire import sas
from tests.wire.broker_process import BrokerProcess
from tests.wire.clients import LoopThread


class Administration:
    """One administration client; the asynchronous one is waited for."""

    def __init__(self, client: Any, loop: LoopThread | None) -> None:
        self._client = client
        self._loop = loop

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._client, name)
        if self._loop is None:
            return lambda *args, **kwargs: _listed(method(*args, **kwargs))
        loop = self._loop

        async def call(*args: Any, **kwargs: Any) -> Any:
            result = method(*args, **kwargs)
            if isinstance(result, AsyncIterator) or hasattr(result, "__aiter__"):
                return [each async for each in result]
            return await result

        return lambda *args, **kwargs: loop.call(call, *args, **kwargs)


def _listed(result: Any) -> Any:
    return list(result) if hasattr(result, "by_page") else result


def open_clerk(
    flavour: str, broker: BrokerProcess, loop: LoopThread, text: str = "", **options: Any
) -> Administration:
    string = text or sas.connection_string(broker.http_port)
    options |= {"connection_verify": str(broker.authority), "retry_total": 0}
    if flavour == "sync":
        return Administration(
            ServiceBusAdministrationClient.from_connection_string(string, **options), None
        )
    make = AsyncAdministrationClient.from_connection_string
    return Administration(loop.call(make, string, **options), loop)
