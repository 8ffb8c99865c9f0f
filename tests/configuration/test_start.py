"""What a broker starts with, and the key it refuses to show to the network."""

import json
from pathlib import Path

import pytest

from peeklock.configuration.content import Configuration, ConfigurationError
from peeklock.configuration.start import configuration_for
from peeklock.settings import Settings


def test_without_a_file_the_namespace_has_the_development_rule_and_no_queues() -> None:
    assert configuration_for(Settings()) == Configuration()


def test_the_development_key_is_refused_on_an_open_address_unless_allowed() -> None:
    with pytest.raises(ConfigurationError, match="--allow-development-key"):
        configuration_for(Settings(host="0.0.0.0"))
    allowed = configuration_for(Settings(host="0.0.0.0", allow_development_key=True))
    assert allowed == Configuration()


def test_own_keys_may_be_served_anywhere(tmp_path: Path) -> None:
    rule = {"Name": "root", "PrimaryKey": "mine", "Rights": ["Manage"]}
    namespace = {"Name": "ns", "AuthorizationRules": [rule]}
    path = tmp_path / "Config.json"
    path.write_text(json.dumps({"UserConfig": {"Namespaces": [namespace]}}))
    configuration = configuration_for(Settings(host="0.0.0.0", config=path))
    assert [r.primary_key for r in configuration.namespaces[0].rules] == ["mine"]
