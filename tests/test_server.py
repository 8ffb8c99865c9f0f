"""The server's own words; that it serves at all is shown by the wire tests."""

import asyncio
import json
import resource
from pathlib import Path

import pytest

from peeklock.auth.rights import development_rule
from peeklock.broker.descriptions import FIRST_PLACEMENT, write_entity
from peeklock.configuration.content import (
    ConfigurationError,
)
from peeklock.entity.definition import QueueDefinition
from peeklock.server import _allow_many_descriptors, serve
from peeklock.settings import Settings
from peeklock.store.catalog import EmbeddedCatalog
from peeklock.store.store import Corrupt


def kept(data: Path, text: str) -> None:
    """Leave a queue in the catalog, as an earlier start would have."""

    async def save() -> None:
        catalog = EmbeddedCatalog(data / "catalog")
        await catalog.save("ns", "queue", "kept", text)
        await catalog.close()

    asyncio.run(save())


def own_keys(directory: Path) -> Path:
    rule = {"Name": "root", "PrimaryKey": "mine", "Rights": ["Manage"]}
    namespace = {"Name": "ns", "AuthorizationRules": [rule]}
    path = directory / "Config.json"
    path.write_text(json.dumps({"UserConfig": {"Namespaces": [namespace]}}))
    return path


def test_a_kept_queue_does_not_bring_the_development_key_to_an_open_address(
    tmp_path: Path,
) -> None:
    """What the file does not show is looked at too, before anything listens."""
    kept(tmp_path, write_entity(QueueDefinition("kept"), [development_rule()], FIRST_PLACEMENT))
    settings = Settings(data=tmp_path, host="0.0.0.0", config=own_keys(tmp_path))
    with pytest.raises(ConfigurationError, match="--allow-development-key"):
        serve(settings)


def test_a_damaged_description_is_named(tmp_path: Path) -> None:
    kept(tmp_path, '{"path": "kept", "no_such_property": 1}')
    with pytest.raises(Corrupt, match="kept"):
        serve(Settings(data=tmp_path, config=own_keys(tmp_path)))


def test_as_many_connections_fit_as_the_system_allows() -> None:
    """R-F7: shells begin with few descriptors."""
    few, many = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1_000, many))
    try:
        _allow_many_descriptors()
        raised, kept = resource.getrlimit(resource.RLIMIT_NOFILE)
        assert kept == many
        assert raised == (65_536 if many == resource.RLIM_INFINITY else min(many, 65_536))
        # What is more already stays.
        _allow_many_descriptors()
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == raised
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (few, many))
