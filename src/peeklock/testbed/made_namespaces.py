"""Namespaces that are made and dropped while the broker serves: a fresh one for each test."""

import json
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, final

from peeklock.auth.rights import ROOT_RULE_NAME, AuthorizationRule
from peeklock.broker.broker import Broker
from peeklock.broker.changes import EntityError
from peeklock.configuration.content import Configuration, ConfigurationError
from peeklock.configuration.file import parse_configuration
from peeklock.gateway.listening.connections import AmqpConnections
from peeklock.provisioning import put_entities
from peeklock.settings import Settings

_DROPPED: Final = "The namespace was dropped."
# In the document of a namespace these are given by whoever makes it.
_GIVEN: Final = ("Name", "AuthorizationRules")


class NamespaceError(Exception):
    """A namespace cannot be made, filled or dropped; the text says why."""


@final
@dataclass(frozen=True, slots=True)
class MadeNamespace:
    """A namespace and the key that tells it from all others, whatever the host."""

    name: str
    key: str

    def connection_string(self, place: str) -> str:
        """Say how clients connect; the place is a host and its port."""
        return (
            f"Endpoint=sb://{place};SharedAccessKeyName={ROOT_RULE_NAME};"
            f"SharedAccessKey={self.key};UseDevelopmentEmulator=true;"
        )


@final
class MadeNamespaces:
    """Makes and drops namespaces; those of the configuration are not its matter."""

    def __init__(
        self,
        settings: Settings,
        broker: Broker,
        amqp: AmqpConnections,
        forget: Callable[[str], None],
    ) -> None:
        """`forget` is told which namespace is gone, for those who count by namespace."""
        self._settings: Final = settings
        self._broker: Final = broker
        self._amqp: Final = amqp
        self._forget: Final = forget
        self._made: Final[dict[str, MadeNamespace]] = {}

    def all(self) -> list[MadeNamespace]:
        """List those that were made and not dropped."""
        return list(self._made.values())

    def get(self, name: str) -> MadeNamespace:
        """Give one that was made here."""
        made = self._made.get(name.lower())
        if made is None:
            raise NamespaceError(f"No namespace '{name}' was made here.")
        return made

    async def make(
        self, name: str = "", document: Mapping[str, Any] | None = None
    ) -> MadeNamespace:
        """Make a namespace with a key of its own; the document has its entities, as `Config.json`
        has those of a namespace."""
        name = name or f"test-{secrets.token_hex(6)}"
        configuration = _read(name, document or {})
        made = MadeNamespace(name, secrets.token_hex(16))
        try:
            self._broker.namespaces.add(name, [AuthorizationRule(ROOT_RULE_NAME, made.key)])
        except ValueError as error:
            raise NamespaceError(str(error)) from error
        self._made[name.lower()] = made
        try:
            await self._put(configuration)
        except NamespaceError:
            await self.drop(name)
            raise
        return made

    async def configure(self, name: str, document: Mapping[str, Any]) -> None:
        """Create or change entities of a namespace, described as in `Config.json`."""
        await self._put(_read(self.get(name).name, document))

    async def subscribe(self, name: str, topic: str, document: Mapping[str, Any]) -> None:
        """Create or change a subscription of a topic that is there and stays as it is."""
        described = {"Topics": [{"Name": topic, "Subscriptions": [document]}]}
        namespace = _read(self.get(name).name, described).namespaces[0]
        wishes = [
            (each.definition, each.rules if each.gives_rules else None)
            for each in namespace.topics[0].subscriptions
        ]
        try:
            await self._broker.put_subscriptions(wishes, namespace.name)
        except EntityError as error:
            raise NamespaceError(str(error)) from error

    async def drop(self, name: str) -> None:
        """Drop a namespace with its entities and messages; its clients are cut off."""
        made = self.get(name)
        del self._made[name.lower()]
        # Nobody comes in from here on.
        self._broker.namespaces.get(made.name).keys.set_namespace_rules(())
        self._amqp.cut_off(made.name, _DROPPED)
        for entity in self._broker.entities(made.name):
            await self._broker.remove(entity.path, made.name)
        self._broker.namespaces.drop(made.name)
        self._forget(made.name)

    async def _put(self, configuration: Configuration) -> None:
        try:
            await put_entities(self._broker, self._settings, configuration)
        except ConfigurationError as error:
            raise NamespaceError("\n".join(error.problems)) from error


def _read(name: str, document: Mapping[str, Any]) -> Configuration:
    given = [word for word in _GIVEN if word in document]
    if given:
        raise NamespaceError(f"{' and '.join(given)} cannot be given here.")
    text = json.dumps({"UserConfig": {"Namespaces": [{"Name": name, **document}]}})
    try:
        return parse_configuration(text, "namespace")
    except ConfigurationError as error:
        raise NamespaceError("\n".join(error.problems)) from error
