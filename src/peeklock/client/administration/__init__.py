"""Administration: queues, topics, subscriptions and rules, made, read, changed and deleted.

`ServiceBusAdministrationClient` is for asyncio; the one of the same name in
`peeklock.client.administration.blocking` is for those who do not await. Names and meanings are
those of `azure.servicebus.management`.
"""

from typing import TYPE_CHECKING, Any

from peeklock.client.administration.errors import (
    AzureError,
    ClientAuthenticationError,
    HttpResponseError,
    ResourceExistsError,
    ResourceNotFoundError,
    ServiceRequestError,
    ServiceResponseError,
)
from peeklock.client.administration.properties import (
    FOREVER,
    AccessRights,
    AuthorizationRule,
    EntityAvailabilityStatus,
    EntityStatus,
    NamespaceProperties,
    QueueProperties,
    QueueRuntimeProperties,
    SubscriptionProperties,
    SubscriptionRuntimeProperties,
    TopicProperties,
    TopicRuntimeProperties,
)
from peeklock.client.administration.rules import (
    CorrelationRuleFilter,
    FalseRuleFilter,
    RuleProperties,
    SqlRuleAction,
    SqlRuleFilter,
    TrueRuleFilter,
)

if TYPE_CHECKING:
    from peeklock.client.administration.administration_client import (
        ServiceBusAdministrationClient as ServiceBusAdministrationClient,
    )

__all__ = [
    "FOREVER",
    "AccessRights",
    "AuthorizationRule",
    "AzureError",
    "ClientAuthenticationError",
    "CorrelationRuleFilter",
    "EntityAvailabilityStatus",
    "EntityStatus",
    "FalseRuleFilter",
    "HttpResponseError",
    "NamespaceProperties",
    "QueueProperties",
    "QueueRuntimeProperties",
    "ResourceExistsError",
    "ResourceNotFoundError",
    "RuleProperties",
    "ServiceBusAdministrationClient",
    "ServiceRequestError",
    "ServiceResponseError",
    "SqlRuleAction",
    "SqlRuleFilter",
    "SubscriptionProperties",
    "SubscriptionRuntimeProperties",
    "TopicProperties",
    "TopicRuntimeProperties",
    "TrueRuleFilter",
]


def __getattr__(name: str) -> Any:
    """Load the client when it is asked for: commands use this package too, and never await."""
    if name != "ServiceBusAdministrationClient":
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    from peeklock.client.administration.administration_client import ServiceBusAdministrationClient

    return ServiceBusAdministrationClient
