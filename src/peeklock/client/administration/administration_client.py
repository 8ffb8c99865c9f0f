"""Administration for asyncio: each request runs in a thread, and the loop goes on meanwhile.

Requests are rare and short here, and the thread's client is the one that commands and Spark use;
`blocking.py` has what the methods take, return and raise.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from itertools import islice
from typing import Any, Final, ParamSpec, Self, TypeVar, Unpack, final

from peeklock.client.administration import blocking
from peeklock.client.administration.properties import (
    NamespaceProperties,
    QueueOptions,
    QueueProperties,
    QueueRuntimeProperties,
    SubscriptionOptions,
    SubscriptionProperties,
    SubscriptionRuntimeProperties,
    TopicOptions,
    TopicProperties,
    TopicRuntimeProperties,
)
from peeklock.client.administration.rules import RuleFilter, RuleProperties, SqlRuleAction
from peeklock.client.credentials import AnyCredential

T = TypeVar("T")
P = ParamSpec("P")

# As many as a page has: more would wait for another request.
_PART: Final = 100


@final
class ServiceBusAdministrationClient:
    """Makes, reads, changes and deletes queues, topics, subscriptions and rules.

        async with ServiceBusAdministrationClient.from_connection_string(BUS) as admin:
            await admin.create_queue("orders", max_delivery_count=5)
            async for queue in admin.list_queues():
                print(queue.name)

    A call that is cancelled does not come back, but its request may still be carried out.
    """

    def __init__(
        self, fully_qualified_namespace: str, credential: AnyCredential, **options: Any
    ) -> None:
        """Name a namespace and who asks; the options are those of the blocking client."""
        self._client = blocking.ServiceBusAdministrationClient(
            fully_qualified_namespace, credential, **options
        )

    @classmethod
    def from_connection_string(cls, conn_str: str, **options: Any) -> Self:
        """Read a connection string; the options are those of the blocking client."""
        made = cls.__new__(cls)
        made._client = blocking.ServiceBusAdministrationClient.from_connection_string(
            conn_str, **options
        )
        return made

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections that are kept."""
        self._client.close()

    # --- the namespace

    async def get_namespace_properties(self) -> NamespaceProperties:
        """Return the name of the namespace and what else is known of it."""
        return await self._call(self._client.get_namespace_properties)

    # --- queues

    async def create_queue(
        self, queue_name: str, **properties: Unpack[QueueOptions]
    ) -> QueueProperties:
        """Make a queue and return it as it was made."""
        return await self._call(self._client.create_queue, queue_name, **properties)

    async def get_queue(self, queue_name: str) -> QueueProperties:
        """Return what the owner of a queue chose."""
        return await self._call(self._client.get_queue, queue_name)

    async def get_queue_runtime_properties(self, queue_name: str) -> QueueRuntimeProperties:
        """Return the counts, the size and the times of a queue."""
        return await self._call(self._client.get_queue_runtime_properties, queue_name)

    async def update_queue(
        self, queue: QueueProperties | Mapping[str, Any], **changes: Any
    ) -> None:
        """Change a queue: to what the properties say, with the changes."""
        await self._call(self._client.update_queue, queue, **changes)

    async def delete_queue(self, queue_name: str) -> None:
        """Delete a queue with all that is in it."""
        await self._call(self._client.delete_queue, queue_name)

    def list_queues(self) -> AsyncIterator[QueueProperties]:
        """Return all queues, page by page as they are asked for."""
        return self._listed(self._client.list_queues())

    def list_queues_runtime_properties(self) -> AsyncIterator[QueueRuntimeProperties]:
        """Return the counts, sizes and times of all queues."""
        return self._listed(self._client.list_queues_runtime_properties())

    # --- topics

    async def create_topic(
        self, topic_name: str, **properties: Unpack[TopicOptions]
    ) -> TopicProperties:
        """Make a topic and return it as it was made."""
        return await self._call(self._client.create_topic, topic_name, **properties)

    async def get_topic(self, topic_name: str) -> TopicProperties:
        """Return what the owner of a topic chose."""
        return await self._call(self._client.get_topic, topic_name)

    async def get_topic_runtime_properties(self, topic_name: str) -> TopicRuntimeProperties:
        """Return the counts, the size and the times of a topic."""
        return await self._call(self._client.get_topic_runtime_properties, topic_name)

    async def update_topic(
        self, topic: TopicProperties | Mapping[str, Any], **changes: Any
    ) -> None:
        """Change a topic: to what the properties say, with the changes."""
        await self._call(self._client.update_topic, topic, **changes)

    async def delete_topic(self, topic_name: str) -> None:
        """Delete a topic with its subscriptions and all that is in them."""
        await self._call(self._client.delete_topic, topic_name)

    def list_topics(self) -> AsyncIterator[TopicProperties]:
        """Return all topics, page by page as they are asked for."""
        return self._listed(self._client.list_topics())

    def list_topics_runtime_properties(self) -> AsyncIterator[TopicRuntimeProperties]:
        """Return the counts, sizes and times of all topics."""
        return self._listed(self._client.list_topics_runtime_properties())

    # --- subscriptions

    async def create_subscription(
        self,
        topic_name: str,
        subscription_name: str,
        *,
        default_rule: RuleProperties | None = None,
        **properties: Unpack[SubscriptionOptions],
    ) -> SubscriptionProperties:
        """Make a subscription of a topic and return it as it was made."""
        create = self._client.create_subscription
        return await self._call(
            create, topic_name, subscription_name, default_rule=default_rule, **properties
        )

    async def get_subscription(
        self, topic_name: str, subscription_name: str
    ) -> SubscriptionProperties:
        """Return what the owner of a subscription chose."""
        return await self._call(self._client.get_subscription, topic_name, subscription_name)

    async def get_subscription_runtime_properties(
        self, topic_name: str, subscription_name: str
    ) -> SubscriptionRuntimeProperties:
        """Return the counts and the times of a subscription."""
        get = self._client.get_subscription_runtime_properties
        return await self._call(get, topic_name, subscription_name)

    async def update_subscription(
        self,
        topic_name: str,
        subscription: SubscriptionProperties | Mapping[str, Any],
        **changes: Any,
    ) -> None:
        """Change a subscription: to what the properties say, with the changes."""
        await self._call(self._client.update_subscription, topic_name, subscription, **changes)

    async def delete_subscription(self, topic_name: str, subscription_name: str) -> None:
        """Delete a subscription with its rules and all that is in it."""
        await self._call(self._client.delete_subscription, topic_name, subscription_name)

    def list_subscriptions(self, topic_name: str) -> AsyncIterator[SubscriptionProperties]:
        """Return all subscriptions of a topic."""
        return self._listed(self._client.list_subscriptions(topic_name))

    def list_subscriptions_runtime_properties(
        self, topic_name: str
    ) -> AsyncIterator[SubscriptionRuntimeProperties]:
        """Return the counts and times of all subscriptions of a topic."""
        return self._listed(self._client.list_subscriptions_runtime_properties(topic_name))

    # --- rules

    async def create_rule(
        self,
        topic_name: str,
        subscription_name: str,
        rule_name: str,
        *,
        filter: RuleFilter | None = None,
        action: SqlRuleAction | None = None,
    ) -> RuleProperties:
        """Add a rule to a subscription and return it."""
        create = self._client.create_rule
        return await self._call(
            create, topic_name, subscription_name, rule_name, filter=filter, action=action
        )

    async def get_rule(
        self, topic_name: str, subscription_name: str, rule_name: str
    ) -> RuleProperties:
        """Return a rule of a subscription."""
        return await self._call(self._client.get_rule, topic_name, subscription_name, rule_name)

    async def update_rule(
        self,
        topic_name: str,
        subscription_name: str,
        rule: RuleProperties | Mapping[str, Any],
        **changes: Any,
    ) -> None:
        """Change filter and action of a rule to what the properties say, with the changes."""
        await self._call(self._client.update_rule, topic_name, subscription_name, rule, **changes)

    async def delete_rule(self, topic_name: str, subscription_name: str, rule_name: str) -> None:
        """Take a rule away from a subscription; one without rules takes nothing."""
        await self._call(self._client.delete_rule, topic_name, subscription_name, rule_name)

    def list_rules(self, topic_name: str, subscription_name: str) -> AsyncIterator[RuleProperties]:
        """Return all rules of a subscription."""
        return self._listed(self._client.list_rules(topic_name, subscription_name))

    # --- asking

    async def _call(self, method: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        token = self._client.kept_token
        # Here and not in the thread: a credential may belong to the loop that its owner runs.
        if token is not None and token.is_due:
            await token.renew()
        return await asyncio.to_thread(method, *args, **kwargs)

    async def _listed(self, found: Iterator[T]) -> AsyncIterator[T]:
        while part := await self._call(_some, found):
            for each in part:
                yield each


def _some(found: Iterator[T]) -> list[T]:
    """Return the next entries of a list; none at its end."""
    return list(islice(found, _PART))
