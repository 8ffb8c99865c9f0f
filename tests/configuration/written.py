"""Configuration files as the tests write them, and what becomes of them."""

import json
from typing import Any, Final

import pytest

from peeklock.configuration.content import ConfigurationError, ConfiguredNamespace
from peeklock.configuration.file import parse_configuration

NAMESPACE: Final = "UserConfig.Namespaces[0]"


def config(*queues: Any, **namespace: Any) -> str:
    """Write a file with one namespace."""
    entry = {"Name": "sbemulatorns", "Queues": list(queues), **namespace}
    return json.dumps({"UserConfig": {"Namespaces": [entry], "Logging": {"Type": "Console"}}})


def queue(name: str = "q1", **properties: Any) -> dict[str, Any]:
    """Write a queue."""
    return {"Name": name, "Properties": properties}


def topic(name: str = "t1", *subscriptions: Any, **properties: Any) -> dict[str, Any]:
    """Write a topic."""
    return {"Name": name, "Properties": properties, "Subscriptions": list(subscriptions)}


def subscription(name: str = "s1", **properties: Any) -> dict[str, Any]:
    """Write a subscription without rules."""
    return {"Name": name, "Properties": properties}


def parsed(text: str) -> ConfiguredNamespace:
    """Read a file that is right and has one namespace."""
    (namespace,) = parse_configuration(text, "Config.json").namespaces
    return namespace


def problems(text: str) -> list[str]:
    """Read a file that is wrong."""
    with pytest.raises(ConfigurationError) as caught:
        parsed(text)
    assert all(line.startswith("Config.json: ") for line in str(caught.value).splitlines())
    return caught.value.problems
