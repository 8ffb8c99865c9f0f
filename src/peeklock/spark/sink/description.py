"""How an entity is described, asked for at the administration API with the writer's own key."""

from dataclasses import dataclass
from typing import Final, final

from peeklock.client.administration.api import AdministrationApi
from peeklock.client.administration.errors import AzureError
from peeklock.client.administration.http_client import HttpClient, http_endpoint
from peeklock.spark.options import Access

# Short, because what is not told is only complained of.
_TIMEOUT_S: Final = 5.0


class Unknown(Exception):
    """The description cannot be had; a key that may only send is not told, for example."""


@final
@dataclass(frozen=True, slots=True)
class EntityTraits:
    """What decides on how an entity is written to."""

    remembers_ids: bool
    is_partitioned: bool


def describe(access: Access, entity: str) -> EntityTraits:
    """Ask for the description of a queue or a topic."""
    endpoint = http_endpoint(access.connection_string, access.http_port, access.ca_file)
    http = HttpClient(endpoint, timeout_s=min(_TIMEOUT_S, access.timeout_ms / 1000))
    try:
        found = AdministrationApi(http, token_path=entity).look(entity)
    except AzureError as error:
        raise Unknown(str(error)) from error
    finally:
        http.close()
    if found is None or "RequiresDuplicateDetection" not in found.values:
        raise Unknown(f"there is no description of '{entity}'")
    return EntityTraits(
        remembers_ids=found.values["RequiresDuplicateDetection"],
        is_partitioned=found.values.get("EnablePartitioning", False),
    )
