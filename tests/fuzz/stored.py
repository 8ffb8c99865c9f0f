"""Messages as bytes, and records as they rest: what is read must make sense or be refused."""

import struct

from peeklock.amqp.errors import ProtocolError
from peeklock.amqp.messages.annotations import drop_annotations, find_annotation
from peeklock.amqp.messages.message import decode_message, encode_message
from peeklock.amqp.messages.properties import (
    check_application_properties,
    peek_properties,
    read_application_properties,
    read_keys,
    read_properties,
)
from peeklock.amqp.messages.sections import lone_data_at, split
from peeklock.store import checksum
from peeklock.store.codec.packing import LISTED_MAX
from peeklock.store.codec.records import VERSION, chunk_header, decode_chunk, decode_messages
from peeklock.store.store import Corrupt
from tests.amqp.batches import batch_messages
from tests.store import builders

FIRST = 1 << 33
RUN_MAX = 4096


def sections(data: bytes) -> str:
    """A message's bytes, cut into sections and read by all who read them."""
    told: list[str] = [str(lone_data_at(data))]
    try:
        parts = split(data)
        told.append(repr(parts))
        found = peek_properties(parts.bare, parts.properties_at)
        told.append(repr(read_keys(parts.bare, parts.properties_at, found)))
        properties = read_properties(parts.bare, parts.properties_at)
        told += [repr(properties.raw(field)) for field in range(13)]
        told += [repr(properties.message_id), repr(properties.absolute_expiry)]
        named = read_application_properties(parts.bare, parts.application_properties_at)
        told.append(repr(named))
        check_application_properties(parts.bare, parts.application_properties_at)
        told.append(repr(find_annotation(parts.annotations, b"x-opt-partition-key")))
        told.append(repr(drop_annotations(parts.annotations, frozenset((b"x-opt-via",)))))
    except ProtocolError as error:
        told.append(error.text)
    for read in (_batch, _whole):
        try:
            told.append(read(data))
        except ProtocolError as error:
            told.append(error.text)
    return "\n".join(told)


def _batch(data: bytes) -> str:
    return repr(batch_messages(data))


def _whole(data: bytes) -> str:
    message = decode_message(data)
    # What was read can be written, and means the same then.
    again = decode_message(encode_message(message))
    assert repr(again) == repr(message)
    return repr(message)


def records(data: bytes) -> str:
    """Records behind good checksums: two bytes of length and a record, again and again."""
    parts: list[bytes] = []
    at = 0
    while at + 2 <= len(data):
        length = int.from_bytes(data[at : at + 2], "little")
        parts.append(data[at + 2 : at + 2 + length])
        at += 2 + length
    told = [_chunk(data)]
    if any(map(_has_long_run, parts)):
        return "a run that is honest, but takes what it says"
    for version in (1, VERSION) if parts else ():
        chunk = chunk_of(parts, version)
        told += [_chunk(chunk), *(_message(chunk, FIRST + at) for at in range(len(parts)))]
    return "\n".join(told)


def _has_long_run(record: bytes) -> bool:
    # A count and a number of runs, wherever they stand; above the largest count it is refused.
    pairs = (struct.unpack_from("<II", record, at) for at in range(len(record) - 7))
    return any(RUN_MAX < count <= LISTED_MAX and 0 < runs <= len(record) for count, runs in pairs)


def chunk_of(parts: list[bytes], version: int) -> bytes:
    """A chunk as the store writes it, whatever its records are."""
    table: list[int] = []
    end = 0
    for index, part in enumerate(parts):
        end += len(part)
        crc = checksum.crc32(part, (FIRST + index) & 0xFFFFFFFF)
        # Since the second version there is one of the head, which is read where the whole is bad.
        table += [end, crc] if version == 1 else [end, crc, crc]
    header = struct.pack("<B3xIQq", version, len(parts), FIRST, 7)
    packed = struct.pack(f"<{len(table)}I", *table)
    crc = checksum.crc32(packed, checksum.crc32(header))
    return b"".join([header, struct.pack("<I", crc), packed, *parts])


def _chunk(chunk: bytes) -> str:
    told: list[str] = []
    for bodies in (True, False):
        try:
            told.append(repr(chunk_header(chunk)))
            told.append(repr(builders.told(decode_chunk(chunk, bodies)[1], bodies)))
        except Corrupt as error:
            told.append(str(error))
    return " ".join(told)


def _message(chunk: bytes, position: int) -> str:
    try:
        return repr(builders.shown(decode_messages(chunk, [position])[0]))
    except Corrupt as error:
        return str(error)
