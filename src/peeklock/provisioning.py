"""What the configuration file asks for, brought about: at the start, and again when it is reloaded.

A reload changes everything that it can or nothing: the whole file is read and held against what
there is before anything is touched. Connections stay, but for those whose rights end.
"""

import asyncio
from functools import partial
from typing import Final, TypeAlias, final

from peeklock.auth.namespaces import Namespace
from peeklock.broker.broker import Broker
from peeklock.broker.changes import (
    EntityError,
    check_problems,
    check_queue_change,
    check_subscription_change,
    check_topic_change,
    taken,
)
from peeklock.broker.entities import Entity, Queue, Subscription, Topic
from peeklock.broker.forwarding.destinations import Forwarding, missing_destinations
from peeklock.broker.rules import stamped
from peeklock.configuration.content import (
    Configuration,
    ConfigurationError,
    ConfiguredNamespace,
    ConfiguredQueue,
    ConfiguredSubscription,
    ConfiguredTopic,
)
from peeklock.configuration.start import configuration_for
from peeklock.entity.definition import QUEUE, SUBSCRIPTION, TOPIC
from peeklock.entity.refusals import ENTITY_EXISTS
from peeklock.gateway.http.reload import NotReloaded, Reloaded
from peeklock.gateway.listening.tls import Tls
from peeklock.gateway.tokens.issuers import Issuers, KeysError
from peeklock.gateway.tokens.key_sets import Keys
from peeklock.settings import Settings
from peeklock.store.store import StoreError

_Configured: TypeAlias = ConfiguredQueue | ConfiguredTopic | ConfiguredSubscription


async def put_entities(broker: Broker, settings: Settings, configuration: Configuration) -> None:
    """Create or change what the file asks for; whatever else there is stays."""
    problems: list[str] = []
    for namespace in configuration.namespaces:
        try:
            await _put_namespace(broker, namespace)
        except EntityError as error:
            raise ConfigurationError(str(settings.config), [_way_out(error, settings)]) from error
        # Checked last: entities may forward to each other.
        problems += [
            f"'{definition.path}' forwards to '{missing}', which is not there"
            for definition in _forwarding(namespace)
            if (missing := broker.missing_destination(definition, namespace.name))
        ]
    if problems:
        raise ConfigurationError(str(settings.config), problems)


def _way_out(error: EntityError, settings: Settings) -> str:
    """Say how to go on where the file meets something else that earlier starts have left."""
    if error.refusal.kind != ENTITY_EXISTS:
        return str(error)
    return (
        f"{error} It rests in '{settings.data}' from an earlier start: give yours another name, "
        "or start with another directory (PEEKLOCK_DATA=DIR or --data DIR), or start without this "
        "file and delete what is there."
    )


async def _put_namespace(broker: Broker, namespace: ConfiguredNamespace) -> None:
    await broker.put_queues(
        [(queue.definition, queue.rules) for queue in namespace.queues], namespace.name
    )
    for topic in namespace.topics:
        await broker.put_topic(topic.definition, topic.rules, namespace.name)
        await broker.put_subscriptions(
            [
                (each.definition, each.rules if each.gives_rules else None)
                for each in topic.subscriptions
            ],
            namespace.name,
        )


def _forwarding(namespace: ConfiguredNamespace) -> list[Forwarding]:
    found: list[Forwarding] = [queue.definition for queue in namespace.queues]
    for topic in namespace.topics:
        found += [each.definition for each in topic.subscriptions]
    return found


@final
class Reload:
    """Reads the configuration file and the certificate again, and lets them hold."""

    def __init__(
        self,
        settings: Settings,
        broker: Broker,
        tls: Tls | None,
        issuers: dict[str, Issuers] | None = None,
    ) -> None:
        """Issuers are those of each namespace, by its name in lower case."""
        self._settings: Final = settings
        self._broker: Final = broker
        self._tls: Final = tls
        self._issuers: Final = {} if issuers is None else issuers
        self._turn: Final = asyncio.Lock()

    async def __call__(self) -> Reloaded:
        """Reload; NotReloaded says what is wrong, and then everything is as it was."""
        async with self._turn:
            try:
                # A file may be long, and a disk slow; others go on meanwhile.
                configuration = await asyncio.to_thread(configuration_for, self._settings)
                shown = None if self._tls is None else await asyncio.to_thread(self._tls.read_again)
                keys = await self._keys_of_issuers(configuration)
            except (ConfigurationError, OSError, ValueError, KeysError) as error:
                raise NotReloaded(str(error)) from error
            problems = [
                problem
                for namespace in configuration.namespaces
                for problem in self._problems(namespace)
            ]
            if problems:
                raise NotReloaded(str(ConfigurationError(str(self._settings.config), problems)))
            known, restart = self._known(configuration)
            changed = [change for each in known for change in self._changes(each)]
            try:
                await put_entities(self._broker, self._settings, Configuration(tuple(known)))
            except (ConfigurationError, StoreError) as error:
                raise NotReloaded(f"{error}; what was done before that stays") from error
            changed += self._let_keys_hold(known)
            changed += self._let_issuers_hold(known, keys)
            if self._tls is not None and shown is not None and self._tls.show(shown):
                changed.append("the certificate is another")
            return Reloaded(changed, restart)

    def _known(self, configuration: Configuration) -> tuple[list[ConfiguredNamespace], list[str]]:
        """Return the namespaces of the file that are served, and what a restart would change."""
        served = {each.name.lower() for each in self._broker.namespaces.all() if each.is_configured}
        known = [each for each in configuration.namespaces if each.name.lower() in served]
        restart = [
            f"the namespace '{each.name}' is new"
            for each in configuration.namespaces
            if each.name.lower() not in served
        ]
        asked = {each.name.lower() for each in configuration.namespaces}
        restart += [
            f"the namespace '{each.name}' is no longer in the file"
            for each in self._broker.namespaces.all()
            if each.is_configured and each.name.lower() not in asked
        ]
        return known, restart

    def _let_keys_hold(self, known: list[ConfiguredNamespace]) -> list[str]:
        """Replace the rules of the namespaces; whoever lives on a key that is gone is sent away."""
        changed: list[str] = []
        asked = {each.name.lower(): each for each in known}
        for namespace in self._broker.namespaces.all():
            found = asked.get(namespace.name.lower())
            if found is not None and self._keys_change(namespace, found):
                changed.append(f"the rules of the namespace '{namespace.name}' are others")
        return changed

    async def _keys_of_issuers(self, configuration: Configuration) -> dict[str, dict[str, Keys]]:
        """Read the keys of all issuers side by side, and beside the loop."""
        asked = {
            each.name.lower(): each.issuers
            for each in configuration.namespaces
            if each.name.lower() in self._issuers
        }
        found = await asyncio.gather(
            *(asyncio.to_thread(self._issuers[name].load, asked[name]) for name in asked)
        )
        return dict(zip(asked, found, strict=True))

    def _let_issuers_hold(
        self, known: list[ConfiguredNamespace], keys: dict[str, dict[str, Keys]]
    ) -> list[str]:
        """Believe the issuers of the file; who was believed by others is sent away."""
        changed: list[str] = []
        for each in known:
            issuers = self._issuers.get(each.name.lower())
            if issuers is None or not issuers.hold(each.issuers, keys[each.name.lower()]):
                continue
            issuers.begin()
            believed = None if issuers.is_empty else issuers
            self._broker.namespaces.get(each.name).keys.believe(believed)
            changed.append(
                f"the token issuers of the namespace '{each.name}' or their keys are others"
            )
        return changed

    def _keys_change(self, namespace: Namespace, asked: ConfiguredNamespace) -> bool:
        if namespace.keys.namespace_rules == asked.rules:
            return False
        namespace.keys.set_namespace_rules(asked.rules)
        return True

    # --- what is wrong, found before anything is touched

    def _problems(self, namespace: ConfiguredNamespace) -> list[str]:
        found: list[str] = []
        find = partial(self._broker.find, namespace.name)
        for asked in _all(namespace):
            try:
                _check(find(asked.definition.path), asked)
            except EntityError as error:
                found.append(str(error))
        made = {queue.definition.path.lower() for queue in namespace.queues}
        made |= {topic.definition.path.lower() for topic in namespace.topics}
        for definition in _forwarding(namespace):
            for missing in missing_destinations(definition, find):
                if missing.lower() not in made:
                    found.append(f"'{definition.path}' forwards to '{missing}', which is not there")
        return found

    # --- what becomes different, to be told

    def _changes(self, namespace: ConfiguredNamespace) -> list[str]:
        return [
            f"{_kind(asked)} '{asked.definition.path}' {change}"
            for asked in _all(namespace)
            if (change := _change(self._broker.find(namespace.name, asked.definition.path), asked))
        ]


def _all(namespace: ConfiguredNamespace) -> list[_Configured]:
    found: list[_Configured] = list(namespace.queues)
    for topic in namespace.topics:
        found.append(topic)
        found += topic.subscriptions
    return found


def _kind(asked: _Configured) -> str:
    if isinstance(asked, ConfiguredQueue):
        return QUEUE
    return TOPIC if isinstance(asked, ConfiguredTopic) else SUBSCRIPTION


def _check(known: Entity | None, asked: _Configured) -> None:
    """Decline what could not be put."""
    check_problems(asked.definition.problems())
    if isinstance(asked, ConfiguredQueue) and isinstance(known, Queue):
        check_queue_change(known.definition, asked.definition)
    elif isinstance(asked, ConfiguredTopic) and isinstance(known, Topic):
        check_topic_change(known.definition, asked.definition)
    elif isinstance(asked, ConfiguredSubscription) and isinstance(known, Subscription):
        check_subscription_change(known.definition, asked.definition)
    elif known is not None:
        raise taken(known.path, known.kind)


def _change(known: Entity | None, asked: _Configured) -> str:
    if known is None:
        return "is new"
    if known.definition != asked.definition:
        return "is changed"
    if isinstance(asked, ConfiguredSubscription):
        assert isinstance(known, Subscription)
        is_same = not asked.gives_rules or stamped(asked.rules, 0, known.rules) == known.rules
        return "" if is_same else "has other rules"
    assert isinstance(known, (Queue, Topic))
    return "" if known.keys == asked.rules else "has other authorization rules"
