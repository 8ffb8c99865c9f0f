"""The configuration file, read again while the broker runs: all of it holds, or nothing does."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from peeklock.auth.keyring import TokenGrant
from peeklock.auth.namespaces import Namespace, Namespaces
from peeklock.auth.sas import generate_sas
from peeklock.broker.entities import Queue, Subscription
from peeklock.clock import ManualClock
from peeklock.configuration.content import ConfigurationError
from peeklock.configuration.start import configuration_for
from peeklock.gateway.http.reload import NotReloaded, Reloaded
from peeklock.gateway.listening.certificates import ensure_certificate
from peeklock.gateway.listening.tls import Tls
from peeklock.provisioning import Reload, put_entities
from peeklock.settings import Settings
from tests.broker.broker_harness import BrokerHarness
from tests.gateway.listening.test_tls import own_files

NOW = 1_790_000_000_000


def rule(key: str, name: str = "root", rights: str = "Manage") -> dict[str, Any]:
    return {"Name": name, "PrimaryKey": key, "Rights": [rights]}


def first_file() -> dict[str, Any]:
    return {
        "Name": "ns",
        "AuthorizationRules": [rule("one")],
        "Queues": [{"Name": "orders"}, {"Name": "own", "AuthorizationRules": [rule("mine")]}],
        "Topics": [{"Name": "news", "Subscriptions": [{"Name": "all"}]}],
    }


class ProvisionedBroker:
    """A broker that was started with a file, and what reloads it."""

    def __init__(self, directory: Path, *others: dict[str, Any], **choices: Any) -> None:
        self.path = directory / "Config.json"
        self.namespace = first_file()
        self.others = list(others)
        self.write()
        self.settings = Settings(config=self.path, data=directory / "data", **choices)
        self.configuration = configuration_for(self.settings)
        spaces = [Namespace(each.name, each.rules) for each in self.configuration.namespaces]
        self.broker = BrokerHarness(namespaces=Namespaces(spaces)).broker
        self.tls: Tls | None = None

    def write(self) -> None:
        spaces = [self.namespace, *self.others]
        self.path.write_text(json.dumps({"UserConfig": {"Namespaces": spaces}}))

    async def start(self) -> None:
        await self.broker.start()
        await put_entities(self.broker, self.settings, self.configuration)

    async def reload(self) -> Reloaded:
        self.write()
        return await Reload(self.settings, self.broker, self.tls)()

    def opens(self, key: str, path: str = "orders", name: str = "root") -> bool:
        now = self.broker.namespaces.first.keys
        token = generate_sas(f"sb://localhost/{path}", name, key, NOW + 60_000)
        return isinstance(now.verify(token, path, NOW), TokenGrant)


def run(
    directory: Path,
    test: Callable[[ProvisionedBroker], Awaitable[None]],
    *others: dict[str, Any],
    **choices: Any,
) -> None:
    async def whole() -> None:
        provisioned = ProvisionedBroker(directory, *others, **choices)
        await provisioned.start()
        await test(provisioned)
        await provisioned.broker.close()

    asyncio.run(whole())


def test_a_file_that_is_the_same_changes_nothing(tmp_path: Path) -> None:
    async def scenario(provisioned: ProvisionedBroker) -> None:
        reloaded = await provisioned.reload()
        assert (reloaded.changed, reloaded.restart) == ([], [])

    run(tmp_path, scenario)


def test_keys_entities_and_rules_are_those_of_the_file(tmp_path: Path) -> None:
    async def scenario(provisioned: ProvisionedBroker) -> None:
        watched: list[str] = []
        provisioned.broker.namespaces.first.keys.watch(lambda: watched.append("changed"))
        space = provisioned.namespace
        space["AuthorizationRules"] = [rule("two")]
        space["Queues"][0]["Properties"] = {"MaxDeliveryCount": 3, "ForwardTo": "later"}
        space["Queues"][1]["AuthorizationRules"] = [rule("other")]
        space["Queues"].append({"Name": "later"})
        big = {"FilterType": "Sql", "SqlFilter": {"SqlExpression": "size > 3"}}
        rules = [{"Name": "big", "Properties": big}]
        space["Topics"][0]["Subscriptions"][0]["Rules"] = rules
        reloaded = await provisioned.reload()
        assert reloaded.changed == [
            "queue 'orders' is changed",
            "queue 'own' has other authorization rules",
            "queue 'later' is new",
            "subscription 'news/Subscriptions/all' has other rules",
            "the rules of the namespace 'ns' are others",
        ]
        assert reloaded.restart == []
        assert [provisioned.opens(key) for key in ("one", "two")] == [False, True]
        assert [provisioned.opens(key, "own") for key in ("mine", "other")] == [False, True]
        assert watched
        found = provisioned.broker.find("ns", "orders")
        assert isinstance(found, Queue)
        assert found.definition.delivery_count_max == 3
        taking = provisioned.broker.find("ns", "news/Subscriptions/all")
        assert isinstance(taking, Subscription)
        assert [each.name for each in taking.rules] == ["big"]
        # What is not in the file any more is kept, as at a start.
        del space["Queues"][1:]
        space["Queues"][0].pop("Properties")
        assert (await provisioned.reload()).changed == ["queue 'orders' is changed"]
        assert provisioned.broker.find("ns", "later") is not None

    run(tmp_path, scenario)


def spoil_rights(space: dict[str, Any]) -> None:
    space["AuthorizationRules"][0]["Rights"] = ["Fly"]


def spoil_sessions(space: dict[str, Any]) -> None:
    space["Queues"][0]["Properties"] = {"RequiresSession": True}


def spoil_destination(space: dict[str, Any]) -> None:
    space["Queues"][0]["Properties"] = {
        "ForwardTo": "new",
        "ForwardDeadLetteredMessagesTo": "nowhere",
    }


def spoil_name(space: dict[str, Any]) -> None:
    space["Queues"][0]["Name"] = "news"


def spoil_subscription(space: dict[str, Any]) -> None:
    space["Topics"][0]["Subscriptions"][0]["Properties"] = {"RequiresSession": True}


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (spoil_rights, "Fly"),
        (spoil_sessions, "RequiresSession"),
        (spoil_destination, "'orders' forwards to 'nowhere'"),
        (spoil_name, "news"),
        (spoil_subscription, "RequiresSession"),
    ],
)
def test_what_is_wrong_is_told_and_nothing_changes(
    spoil: Callable[[dict[str, Any]], None], words: str, tmp_path: Path
) -> None:
    async def scenario(provisioned: ProvisionedBroker) -> None:
        provisioned.namespace["AuthorizationRules"] = [rule("two")]
        provisioned.namespace["Queues"].append({"Name": "new"})
        spoil(provisioned.namespace)
        with pytest.raises(NotReloaded, match=words):
            await provisioned.reload()
        assert provisioned.opens("one")
        assert not provisioned.opens("two")
        assert provisioned.broker.find("ns", "new") is None

    run(tmp_path, scenario)


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    async def scenario(provisioned: ProvisionedBroker) -> None:
        reload = Reload(provisioned.settings, provisioned.broker, None)
        provisioned.path.write_text("{")
        with pytest.raises(NotReloaded, match=r"Config\.json"):
            await reload()
        provisioned.path.unlink()
        with pytest.raises(NotReloaded, match=r"Config\.json"):
            await reload()

    run(tmp_path, scenario)


def test_a_known_key_is_not_brought_to_an_open_address(tmp_path: Path) -> None:
    async def scenario(provisioned: ProvisionedBroker) -> None:
        provisioned.namespace["AuthorizationRules"] = [rule("SAS_KEY_VALUE")]
        with pytest.raises(NotReloaded, match="development key"):
            await provisioned.reload()
        assert provisioned.opens("one")

    run(tmp_path, scenario, host="0.0.0.0")


def test_namespaces_come_and_go_by_a_restart(tmp_path: Path) -> None:
    async def scenario(provisioned: ProvisionedBroker) -> None:
        provisioned.others[0]["Name"] = "three"
        provisioned.namespace["Queues"].append({"Name": "new"})
        reloaded = await provisioned.reload()
        assert reloaded.changed == ["queue 'new' is new"]
        assert reloaded.restart == [
            "the namespace 'three' is new",
            "the namespace 'two' is no longer in the file",
        ]
        assert [each.name for each in provisioned.broker.namespaces.all()] == ["ns", "two"]

    run(tmp_path, scenario, {"Name": "two"})


def test_a_new_certificate_is_shown_from_the_next_handshake_on(tmp_path: Path) -> None:
    async def scenario(provisioned: ProvisionedBroker) -> None:
        certificate, key = own_files(tmp_path)
        provisioned.tls = Tls.of_files(ManualClock(NOW), certificate, key)
        before = provisioned.tls.context
        assert (await provisioned.reload()).changed == []
        shutil.rmtree(tmp_path / "issuer")
        own_files(tmp_path)
        assert (await provisioned.reload()).changed == ["the certificate is another"]
        assert provisioned.tls.context is not before
        # One that cannot be read leaves everything as it was.
        now = provisioned.tls.context
        key.write_text("no key")
        provisioned.namespace["AuthorizationRules"] = [rule("two")]
        with pytest.raises(NotReloaded, match="no certificate"):
            await provisioned.reload()
        assert provisioned.tls.context is now
        assert provisioned.opens("one")

    run(tmp_path, scenario)


def test_the_authority_of_development_is_looked_at_too(tmp_path: Path) -> None:
    async def scenario(provisioned: ProvisionedBroker) -> None:
        data = tmp_path / "authority"
        provisioned.tls = Tls.of_authority(ManualClock(NOW), data, ("localhost",))
        assert (await provisioned.reload()).changed == []
        shutil.rmtree(data)
        ensure_certificate(data, ("localhost",), NOW)
        assert (await provisioned.reload()).changed == ["the certificate is another"]

    run(tmp_path, scenario)


def test_a_name_that_something_else_has_is_told_with_the_way_out(tmp_path: Path) -> None:
    """Who follows two documents in one data directory meets it."""

    async def scenario(provisioned: ProvisionedBroker) -> None:
        provisioned.namespace["Queues"] = []
        provisioned.namespace["Topics"] = [{"Name": "orders"}]
        provisioned.write()
        configuration = configuration_for(provisioned.settings)
        with pytest.raises(ConfigurationError) as caught:
            await put_entities(provisioned.broker, provisioned.settings, configuration)
        said = str(caught.value)
        assert "'orders' is taken by a queue (peeklock queue delete orders)" in said
        assert str(provisioned.settings.data) in said
        assert "PEEKLOCK_DATA=DIR" in said

    run(tmp_path, scenario)
