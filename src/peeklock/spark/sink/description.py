"""How an entity is described, asked for at the administration door with the writer's own key."""

import http.client
from dataclasses import dataclass
from typing import Final, final
from urllib.parse import quote

from defusedxml import ElementTree

from peeklock.spark.door import door
from peeklock.spark.options import Access

# Short, because what is not told is only complained of.
_TIMEOUT_S: Final = 5.0
_ANSWER_BYTES_MAX: Final = 1 << 20


class Unknown(Exception):
    """The description cannot be had; a key that may only send is not told, for example."""


@final
@dataclass(frozen=True, slots=True)
class Description:
    """What decides on how an entity is written to."""

    remembers_ids: bool
    is_partitioned: bool


def describe(access: Access, entity: str) -> Description:
    """Ask for the description of a queue or a topic."""
    content = _get(access, entity)
    try:
        # The names of elements are enough: nothing else in such a document is called so.
        found = {
            one.tag.rpartition("}")[2]: one.text for one in ElementTree.fromstring(content).iter()
        }
    except ElementTree.ParseError as error:
        raise Unknown(f"what answers is no description: {error}") from error
    if "RequiresDuplicateDetection" not in found:
        raise Unknown(f"there is no description of '{entity}'")
    return Description(
        remembers_ids=found["RequiresDuplicateDetection"] == "true",
        is_partitioned=found.get("EnablePartitioning") == "true",
    )


def _get(access: Access, entity: str) -> bytes:
    way = door(access.connection_string, access.http_port, access.ca_file)
    address = f"{way.scheme}://{way.host}:{way.port}"
    service = way.opened(min(_TIMEOUT_S, access.timeout_ms / 1000))
    try:
        service.request("GET", f"/{quote(entity)}?api-version=2021-05", headers=way.headers(entity))
        answer = service.getresponse()
        content = answer.read(_ANSWER_BYTES_MAX)
    except (OSError, http.client.HTTPException) as error:
        raise Unknown(f"{address} cannot be asked: {error}") from error
    finally:
        service.close()
    if answer.status != http.client.OK:
        raise Unknown(f"{address} answers {answer.status} {answer.reason}")
    return content
