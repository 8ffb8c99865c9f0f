"""Administration for those who do not await: scripts, commands, Spark tasks.

    from peeklock.client.administration.blocking import ServiceBusAdministrationClient

    with ServiceBusAdministrationClient.from_connection_string(BUS) as admin:
        admin.create_queue("orders", max_delivery_count=5)
        for queue in admin.list_queues_runtime_properties():
            print(queue.name, queue.active_message_count)

Names and meanings are those of `azure.servicebus.management`. Threads may share a client.
"""

import random
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Self, TypeVar, Unpack, final

from peeklock.client.administration import places
from peeklock.client.administration.api import AdministrationApi
from peeklock.client.administration.atom import QUEUE, SUBSCRIPTION, TOPIC, Description
from peeklock.client.administration.conversion import (
    description_of,
    description_of_rule,
    namespace_of,
    properties_of,
    rule_of,
    updated,
)
from peeklock.client.administration.errors import (
    TRY_LATER,
    AzureError,
    HttpResponseError,
)
from peeklock.client.administration.http_client import HttpClient, HttpEndpoint, http_endpoint
from peeklock.client.administration.kept_tokens import KeptToken
from peeklock.client.administration.places import ResourcePath
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
from peeklock.client.administration.rules import (
    RuleFilter,
    RuleProperties,
    SqlRuleAction,
    TrueRuleFilter,
)
from peeklock.client.credentials import AnyCredential

T = TypeVar("T")

_TIMEOUT_S: Final = 120.0
_RETRY_TOTAL: Final = 3
_FIRST_PAUSE_S: Final = 0.4
_LONGEST_PAUSE_S: Final = 10.0


@final
class ServiceBusAdministrationClient:
    """Makes, reads, changes and deletes queues, topics, subscriptions and rules.

    Every method raises
    `ServiceRequestError` where nobody can be reached, `ClientAuthenticationError` where the key is
    not accepted and `HttpResponseError` for every other refusal; those that name an entity raise
    `ResourceNotFoundError` where it is not there. All are `ServiceBusError`s.
    """

    def __init__(
        self,
        fully_qualified_namespace: str,
        credential: AnyCredential,
        *,
        http_port: int = 0,
        ca_file: str = "",
        connection_verify: str | Path | None = None,
        is_plain: bool = False,
        timeout: float = _TIMEOUT_S,
        retry_total: int = _RETRY_TOTAL,
        logging_enable: bool = False,
    ) -> None:
        """Name a namespace, `name.servicebus.windows.net` say, and who asks.

        Parameters:
            fully_qualified_namespace: the host, with a port where it is not the usual one.
            credential: one of azure-identity's, AzureNamedKeyCredential, AzureSasCredential, or
                one of `peeklock.client.credentials`.
            http_port: the broker's port for HTTP, where the namespace does not say it.
            ca_file: the authority that is trusted instead of those of the system.
            connection_verify: the same, as the official client calls it.
            is_plain: whether nothing is encrypted; a broker on this machine may be asked so.
            timeout: how many seconds one answer is waited for.
            retry_total: how often is asked again what may succeed then. What changes something is
                asked again only where the broker said that it did nothing.
            logging_enable: whether each request and its status is a line of the logger
                `peeklock.client.administration` (level DEBUG), without tokens and contents.
        """
        from peeklock.client.connections.config import ClientConfig

        config = ClientConfig.for_namespace(
            fully_qualified_namespace,
            credential,
            is_plain=is_plain,
            is_websocket=True,  # It is told the ports of HTTP.
            ca_file=_authority(ca_file, connection_verify) or None,
        )
        self._token: KeptToken | None = KeptToken(config.host, credential)
        endpoint = HttpEndpoint(
            config.host, http_port or config.port, self._token, config.ssl_context
        )
        self._begin(endpoint, timeout, retry_total, is_traced=logging_enable)

    @classmethod
    def from_connection_string(
        cls,
        conn_str: str,
        *,
        http_port: int = 0,
        ca_file: str = "",
        connection_verify: str | Path | None = None,
        timeout: float = _TIMEOUT_S,
        retry_total: int = _RETRY_TOTAL,
        logging_enable: bool = False,
    ) -> Self:
        """Read a connection string; a ValueError says what is wrong with one.

        The port is `http_port`, else that of the string, else the usual one: 5300 with
        UseDevelopmentEmulator=true and 443 without. Everything is encrypted unless the string has
        that flag and no `ca_file` is given.
        """
        client = cls.__new__(cls)
        client._token = None
        endpoint = http_endpoint(conn_str, http_port, _authority(ca_file, connection_verify))
        client._begin(endpoint, timeout, retry_total, is_traced=logging_enable)
        return client

    def _begin(
        self, endpoint: HttpEndpoint, timeout_s: float, retry_total: int, *, is_traced: bool
    ) -> None:
        endpoint = replace(endpoint, ca_option="ca_file")
        self._http = HttpClient(endpoint, timeout_s=timeout_s, is_traced=is_traced)
        self._api = AdministrationApi(self._http)
        self._retry_total = retry_total

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections that are kept."""
        self._http.close()

    # --- the namespace

    def get_namespace_properties(self) -> NamespaceProperties:
        """Return the name of the namespace and what else is known of it."""
        return namespace_of(self._reading(self._api.namespace))

    # --- queues

    def create_queue(self, queue_name: str, **properties: Unpack[QueueOptions]) -> QueueProperties:
        """Make a queue and return it as it was made.

        Parameters:
            queue_name: its name; a path with slashes is one too.
            properties: any of `QueueProperties`; what is not said is the broker's default.

        Raises ResourceExistsError where there is a queue or topic of this name.
        """
        new = description_of(QUEUE, QueueProperties(queue_name, **properties))
        return properties_of(self._create(places.queue(queue_name), new), QueueProperties)

    def get_queue(self, queue_name: str) -> QueueProperties:
        """Return what the owner of a queue chose."""
        return properties_of(self._get(places.queue(queue_name)), QueueProperties)

    def get_queue_runtime_properties(self, queue_name: str) -> QueueRuntimeProperties:
        """Return the counts, the size and the times of a queue."""
        return properties_of(self._get(places.queue(queue_name)), QueueRuntimeProperties)

    def update_queue(self, queue: QueueProperties | Mapping[str, Any], **changes: Any) -> None:
        """Change a queue: to what the properties say, with the changes.

        Properties that are None stay as they are. Take them from `get_queue`:

            queue = admin.get_queue("orders")
            queue.max_delivery_count = 3
            admin.update_queue(queue)
        """
        wanted = updated(queue, QueueProperties, changes)
        self._update(places.queue(wanted.name), description_of(QUEUE, wanted))

    def delete_queue(self, queue_name: str) -> None:
        """Delete a queue with all that is in it."""
        self._delete(places.queue(queue_name))

    def list_queues(self) -> Iterator[QueueProperties]:
        """Return all queues, page by page as they are asked for."""
        return (properties_of(found, QueueProperties) for found in self._every(places.QUEUES))

    def list_queues_runtime_properties(self) -> Iterator[QueueRuntimeProperties]:
        """Return the counts, sizes and times of all queues."""
        found = self._every(places.QUEUES)
        return (properties_of(each, QueueRuntimeProperties) for each in found)

    # --- topics

    def create_topic(self, topic_name: str, **properties: Unpack[TopicOptions]) -> TopicProperties:
        """Make a topic and return it as it was made; the keywords are those of `TopicProperties`.

        Raises ResourceExistsError where there is a queue or topic of this name.
        """
        new = description_of(TOPIC, TopicProperties(topic_name, **properties))
        return properties_of(self._create(places.topic(topic_name), new), TopicProperties)

    def get_topic(self, topic_name: str) -> TopicProperties:
        """Return what the owner of a topic chose."""
        return properties_of(self._get(places.topic(topic_name)), TopicProperties)

    def get_topic_runtime_properties(self, topic_name: str) -> TopicRuntimeProperties:
        """Return the counts, the size and the times of a topic."""
        return properties_of(self._get(places.topic(topic_name)), TopicRuntimeProperties)

    def update_topic(self, topic: TopicProperties | Mapping[str, Any], **changes: Any) -> None:
        """Change a topic, as `update_queue` does a queue."""
        wanted = updated(topic, TopicProperties, changes)
        self._update(places.topic(wanted.name), description_of(TOPIC, wanted))

    def delete_topic(self, topic_name: str) -> None:
        """Delete a topic with its subscriptions and all that is in them."""
        self._delete(places.topic(topic_name))

    def list_topics(self) -> Iterator[TopicProperties]:
        """Return all topics, page by page as they are asked for."""
        return (properties_of(found, TopicProperties) for found in self._every(places.TOPICS))

    def list_topics_runtime_properties(self) -> Iterator[TopicRuntimeProperties]:
        """Return the counts, sizes and times of all topics."""
        found = self._every(places.TOPICS)
        return (properties_of(each, TopicRuntimeProperties) for each in found)

    # --- subscriptions

    def create_subscription(
        self,
        topic_name: str,
        subscription_name: str,
        *,
        default_rule: RuleProperties | None = None,
        **properties: Unpack[SubscriptionOptions],
    ) -> SubscriptionProperties:
        """Make a subscription of a topic and return it as it was made.

        Parameters:
            topic_name: the name of the topic.
            subscription_name: its own name.
            default_rule: the first rule; without it, one that takes everything.
            properties: any of `SubscriptionProperties`.

        Raises ResourceNotFoundError where there is no such topic, ResourceExistsError where it has
        a subscription of this name.
        """
        new = description_of(SUBSCRIPTION, SubscriptionProperties(subscription_name, **properties))
        first = None if default_rule is None else description_of_rule(default_rule)
        place = places.subscription(topic_name, subscription_name)
        return properties_of(self._create(place, new, first), SubscriptionProperties)

    def get_subscription(self, topic_name: str, subscription_name: str) -> SubscriptionProperties:
        """Return what the owner of a subscription chose."""
        found = self._get(places.subscription(topic_name, subscription_name))
        return properties_of(found, SubscriptionProperties)

    def get_subscription_runtime_properties(
        self, topic_name: str, subscription_name: str
    ) -> SubscriptionRuntimeProperties:
        """Return the counts and the times of a subscription."""
        found = self._get(places.subscription(topic_name, subscription_name))
        return properties_of(found, SubscriptionRuntimeProperties)

    def update_subscription(
        self,
        topic_name: str,
        subscription: SubscriptionProperties | Mapping[str, Any],
        **changes: Any,
    ) -> None:
        """Change a subscription, as `update_queue` does a queue."""
        wanted = updated(subscription, SubscriptionProperties, changes)
        place = places.subscription(topic_name, wanted.name)
        self._update(place, description_of(SUBSCRIPTION, wanted))

    def delete_subscription(self, topic_name: str, subscription_name: str) -> None:
        """Delete a subscription with its rules and all that is in it."""
        self._delete(places.subscription(topic_name, subscription_name))

    def list_subscriptions(self, topic_name: str) -> Iterator[SubscriptionProperties]:
        """Return all subscriptions of a topic."""
        found = self._every(places.subscriptions(topic_name))
        return (properties_of(each, SubscriptionProperties) for each in found)

    def list_subscriptions_runtime_properties(
        self, topic_name: str
    ) -> Iterator[SubscriptionRuntimeProperties]:
        """Return the counts and times of all subscriptions of a topic."""
        found = self._every(places.subscriptions(topic_name))
        return (properties_of(each, SubscriptionRuntimeProperties) for each in found)

    # --- rules

    def create_rule(
        self,
        topic_name: str,
        subscription_name: str,
        rule_name: str,
        *,
        filter: RuleFilter | None = None,
        action: SqlRuleAction | None = None,
    ) -> RuleProperties:
        """Add a rule to a subscription and return it.

        Parameters:
            topic_name: the name of the topic.
            subscription_name: the name of the subscription.
            rule_name: the rule's own name.
            filter: which messages it takes; without one it takes all of them.
            action: what it changes in their copies.

        Raises ResourceExistsError where there is a rule of this name, HttpResponseError where the
        filter or the action cannot be understood.
        """
        rule = RuleProperties(rule_name, filter or TrueRuleFilter(), action)
        place = places.rule(topic_name, subscription_name, rule_name)
        return rule_of(self._create(place, description_of_rule(rule)))

    def get_rule(self, topic_name: str, subscription_name: str, rule_name: str) -> RuleProperties:
        """Return a rule of a subscription."""
        return rule_of(self._get(places.rule(topic_name, subscription_name, rule_name)))

    def update_rule(
        self,
        topic_name: str,
        subscription_name: str,
        rule: RuleProperties | Mapping[str, Any],
        **changes: Any,
    ) -> None:
        """Change filter and action of a rule to what the properties say, with the changes."""
        wanted = updated(rule, RuleProperties, changes)
        place = places.rule(topic_name, subscription_name, wanted.name)
        self._update(place, description_of_rule(wanted))

    def delete_rule(self, topic_name: str, subscription_name: str, rule_name: str) -> None:
        """Take a rule away from a subscription; one without rules takes nothing."""
        self._delete(places.rule(topic_name, subscription_name, rule_name))

    def list_rules(self, topic_name: str, subscription_name: str) -> Iterator[RuleProperties]:
        """Return all rules of a subscription."""
        return map(rule_of, self._every(places.rules(topic_name, subscription_name)))

    # --- asking

    def _get(self, place: ResourcePath) -> Description:
        return self._reading(lambda: self._api.get(place))

    def _every(self, place: ResourcePath) -> Iterator[Description]:
        return self._api.every(place, self._reading)

    def _create(
        self, place: ResourcePath, new: Description, first_rule: Description | None = None
    ) -> Description:
        return self._asked(lambda: self._api.create(place, new, first_rule), is_read=False)

    def _update(self, place: ResourcePath, changed: Description) -> None:
        self._asked(lambda: self._api.update(place, changed), is_read=False)

    def _delete(self, place: ResourcePath) -> None:
        self._asked(lambda: self._api.delete(place), is_read=False)

    def _reading(self, ask: Callable[[], T]) -> T:
        return self._asked(ask, is_read=True)

    def _asked(self, ask: Callable[[], T], *, is_read: bool) -> T:
        """Ask, and ask again where that may help and cannot do the same thing twice."""
        left, pause_s = self._retry_total, _FIRST_PAUSE_S
        while True:
            self._renew_token()
            try:
                return ask()
            except AzureError as error:
                did_nothing = (
                    isinstance(error, HttpResponseError) and error.status_code in TRY_LATER
                )
                if not left or not (did_nothing or (is_read and error.is_retryable)):
                    raise
            # Many clients that lost the same broker should not all come back at once.
            time.sleep(pause_s * random.uniform(0.5, 1.0))
            left, pause_s = left - 1, min(2 * pause_s, _LONGEST_PAUSE_S)

    def _renew_token(self) -> None:
        if self._token is not None and self._token.is_due:
            from peeklock.client.blocking_loop import BlockingLoop

            BlockingLoop.of_this_process().run(self._token.renew())

    @property
    def kept_token(self) -> KeptToken | None:
        """The token that must be renewed before a call, where the key is not in a string."""
        return self._token


def _authority(ca_file: str, connection_verify: str | Path | bool | None) -> str:
    """Return the one that is named under either name; empty where none is."""
    if connection_verify is None:
        return ca_file
    if isinstance(connection_verify, bool):
        raise ValueError("connection_verify is the file of the authority that is trusted")
    if ca_file:
        raise ValueError("ca_file and connection_verify are the same: one of them is enough")
    return str(connection_verify)
