"""What administration raises, in the words of azure-core.

ServiceBusError
  AzureError
    ServiceRequestError            nobody can be reached
    ServiceResponseError           what answers is no Service Bus
    HttpResponseError              the broker declined; `status_code` and `message` say why
      ClientAuthenticationError    the key or token is missing or not accepted (401)
      ResourceNotFoundError        there is no such queue, topic, subscription or rule (404)
      ResourceExistsError          there is one already, or somebody changes it now (409)
"""

from typing import Final

from peeklock.client.exceptions import ServiceBusError

# Nothing was done: the broker asks to come again later.
TRY_LATER: Final = frozenset({429, 503})
_MAY_PASS: Final = TRY_LATER | {500, 502, 504}


class AzureError(ServiceBusError):
    """The root of all that administration raises for what the broker or the network did."""


class ServiceRequestError(AzureError):
    """Nobody can be reached at the address, or the connection was lost before the answer."""

    _is_retryable = True


class ServiceResponseError(AzureError):
    """The answer is not one of a Service Bus."""


class HttpResponseError(AzureError):
    """The broker declined; `status_code` is that of HTTP, `message` the broker's reason."""

    def __init__(
        self,
        message: str = "",
        *,
        status_code: int = 0,
        condition: str = "",
        is_retryable: bool | None = None,
    ) -> None:
        may_pass = status_code in _MAY_PASS if is_retryable is None else is_retryable
        super().__init__(message, condition=condition, is_retryable=may_pass)
        self.status_code = status_code

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuilt, (type(self), self.message, self.status_code)


class ClientAuthenticationError(HttpResponseError):
    """The key or token is missing or not accepted."""


class ResourceNotFoundError(HttpResponseError):
    """There is no such queue, topic, subscription or rule."""


class ResourceExistsError(HttpResponseError):
    """There is something of that name already, or it is being changed by somebody else."""


_BY_STATUS: Final[dict[int, type[HttpResponseError]]] = {
    401: ClientAuthenticationError,
    404: ResourceNotFoundError,
    409: ResourceExistsError,
}


def refusal(status_code: int, message: str) -> HttpResponseError:
    """Return the error for an answer that is a refusal."""
    kind = _BY_STATUS.get(status_code, HttpResponseError)
    return kind(message, status_code=status_code)


def _rebuilt(kind: type[HttpResponseError], message: str, status_code: int) -> HttpResponseError:
    return kind(message, status_code=status_code)
