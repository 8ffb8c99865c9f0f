"""How an entity is described, asked for at the administration door with the writer's own key."""

import http.client
import ssl
from dataclasses import dataclass
from typing import Final, final
from urllib.parse import quote

from defusedxml import ElementTree

from peeklock.client.connection_string import parse_connection_string
from peeklock.settings import AMQP_PORT
from peeklock.spark.options import Access

_TIMEOUT_S: Final = 5.0
_ANSWER_BYTES_MAX: Final = 1 << 20
_HTTPS_PORT: Final = 443
_AMQPS_PORT: Final = 5671


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
    connection = parse_connection_string(access.connection_string)
    is_plain = connection.is_plain and not access.ca_file
    port = access.http_port or connection.port or (AMQP_PORT if is_plain else _HTTPS_PORT)
    if port == _AMQPS_PORT:
        port = _HTTPS_PORT
    host, scheme = connection.address, "http" if is_plain else "https"
    service = (
        http.client.HTTPConnection(host, port, timeout=_TIMEOUT_S)
        if is_plain
        else http.client.HTTPSConnection(
            host,
            port,
            timeout=_TIMEOUT_S,
            context=ssl.create_default_context(cafile=access.ca_file or None),
        )
    )
    headers = {"Host": connection.host, "Authorization": connection.authorization(scheme, entity)}
    try:
        service.request("GET", f"/{quote(entity)}?api-version=2021-05", headers=headers)
        answer = service.getresponse()
        content = answer.read(_ANSWER_BYTES_MAX)
    except (OSError, http.client.HTTPException) as error:
        raise Unknown(f"{scheme}://{host}:{port} cannot be asked: {error}") from error
    finally:
        service.close()
    if answer.status != http.client.OK:
        raise Unknown(f"{scheme}://{host}:{port} answers {answer.status} {answer.reason}")
    return content
