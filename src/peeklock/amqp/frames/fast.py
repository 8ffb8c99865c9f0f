"""Transfer, disposition and flow read and written by hand, because they come with every message.

The tables in `performatives` stay the truth: property tests hold these forms against them, byte for
byte. Reading takes every legal encoding. What a peer writes behind the numbers (flags, outcome) is
the same few byte strings nearly always, so those tails are read once and remembered.
"""

from struct import Struct
from typing import Final

from peeklock.amqp.errors import DecodeError
from peeklock.amqp.frames.parsed import ParsedDisposition, ParsedFlow, ParsedTransfer
from peeklock.amqp.frames.performatives import Transfer
from peeklock.amqp.values.codec import decode, skip
from peeklock.amqp.values.composites import encode_composite, form_of
from peeklock.amqp.values.encoder import encode
from peeklock.amqp.values.readers import (
    READ_ERRORS,
    binary_at,
    cut,
    flag_at,
    list_at,
    raw_fields,
    uint_at,
)
from peeklock.amqp.values.types import Encoded, Uint

_UINT32: Final = Struct(">I")
# A frame's size and second word, the transfer's descriptor with its list8, the list's size.
_RUN_HEAD: Final = Struct(">IIIB").unpack_from
# A wide delivery-id without its code, the code and the size of a tag.
_RUN_ID: Final = Struct(">IBB").unpack_from
# Less than this is no transfer with an id and a tag.
_RUN_SIZE: Final = 32
# Where the field count stands in such a frame, and the usual message format in one byte.
_LEAD_AT: Final = 13
_FORMAT_0: Final = b"\x43"
# Longer ones are illegal [2.8.7].
TAG_SIZE_MAX: Final = 32
# More distinct tails than all known clients write together; a peer that varies them on purpose only
# makes us read them each time.
_TAILS_MAX: Final = 512
# Long enough for every plain outcome, too short for an error text or a transaction's name.
_TAIL_LENGTH_MAX: Final = 24


# settled, more, rcv-settle-mode, state, resume, aborted, batchable, and how many fields there were.
_TransferTail = tuple[bool | None, bool, int, bytes | None, bool, bool, bool, int]
# settled, state, batchable, and how many fields there were.
_DispositionTail = tuple[bool, bytes, bool, int]
_transfer_tails: Final[dict[bytes, _TransferTail]] = {}
_disposition_tails: Final[dict[bytes, _DispositionTail]] = {}


def performative_code(buffer: bytes, position: int, end: int) -> int:
    """Return which composite begins here, whatever form its descriptor has."""
    if position + 3 <= end and buffer[position] == 0 and buffer[position + 1] == 0x53:
        return buffer[position + 2]
    if position >= end or buffer[position] != 0:
        raise DecodeError("a frame that does not begin with a performative")
    descriptor, _ = decode(buffer, position + 1, end)
    found = form_of(descriptor)
    if found is None:
        raise DecodeError(f"no performative has the descriptor {descriptor!r}")
    return found.code


def parse_transfer(buffer: bytes, position: int, end: int) -> ParsedTransfer:
    """Read the transfer that begins at `position` in a frame that ends at `end`."""
    try:
        if buffer[position + 1] == 0x53 and buffer[position + 3] == 0xC0:
            after = position + 5 + buffer[position + 4]
            count = buffer[position + 5]
            at = position + 6
        else:
            at, after, count = list_at(buffer, position, end)
        if count < 4:
            return _short_transfer(buffer, at, after, count, end)
        code = buffer[at]
        if code == 0x52:
            handle = buffer[at + 1]
            at += 2
        else:
            handle, at = uint_at(buffer, at, "transfer.handle")
        code = buffer[at]
        if code == 0x70:
            delivery_id: int = _UINT32.unpack_from(buffer, at + 1)[0]
            at += 5
        elif code == 0x52:
            delivery_id = buffer[at + 1]
            at += 2
        else:
            delivery_id, at = uint_at(buffer, at, "transfer.delivery-id")
        if buffer[at] == 0xA0:
            start = at + 2
            at = start + buffer[at + 1]
            tag: bytes | None = buffer[start:at]
        else:
            tag, at = binary_at(buffer, at, "transfer.delivery-tag")
        if buffer[at] == 0x43:
            message_format = 0
            at += 1
        else:
            message_format, at = uint_at(buffer, at, "transfer.message-format")
    except READ_ERRORS:
        raise cut() from None
    if at > after or after > end or handle < 0:
        raise cut()
    tail = buffer[at:after]
    rest = _transfer_tails.get(tail)
    if rest is None or rest[7] != count - 4:
        rest = _read_transfer_tail(tail, count - 4)
    settled, more, rcv_settle_mode, state, resume, aborted, batchable, _ = rest
    return ParsedTransfer(
        handle,
        delivery_id,
        tag,
        message_format,
        settled,
        more,
        rcv_settle_mode,
        state,
        resume,
        aborted,
        batchable,
        at,
        after,
    )


def transfer_run(
    data: bytes,
    position: int,
    length: int,
    frame_word: int,
    frame_max: int,
    lead: bytes,
    tail: bytes,
    size_max: int,
    count_max: int,
    ids: list[int],
    tags: list[bytes] | None,
    payloads: list[bytes],
) -> int:
    """Read whole frames from `position` on as long as each is a transfer like the one before it:
    same channel and link, a message in one frame. Return where the first other frame begins.

    `frame_word` is the second word of their heads, `lead` the bytes of field count and handle,
    `tail` those behind the message format. Tags are gathered where there is a list for them.
    Whatever is not exactly so is left to `parse_transfer`, with all its checks.
    """
    id_at = _LEAD_AT + len(lead) + 1
    message_format = _FORMAT_0 + tail
    format_size = len(message_format)
    # How a frame begins, up to its id: the same for neighbours of one size.
    size = 0
    payload_at = 0
    begin = b""
    while count_max > 0 and length - position >= _RUN_SIZE:
        if not begin or not data.startswith(begin, position):
            size, word, descriptor, list_size = _RUN_HEAD(data, position)
            payload_at = _LEAD_AT + list_size
            if (
                word != frame_word
                or descriptor != 0x005314C0
                or size > frame_max
                or payload_at > size
                or not data.startswith(lead, position + _LEAD_AT)
                or data[position + id_at - 1] != 0x70
                or (size_max and size - payload_at > size_max)
            ):
                break
            begin = data[position : position + id_at]
        end = position + size
        if end > length:
            break
        delivery_id, tag_code, tag_size = _RUN_ID(data, position + id_at)
        tag_at = position + id_at + 6
        format_at = tag_at + tag_size
        if (
            tag_code != 0xA0
            or tag_size > TAG_SIZE_MAX
            or format_at + format_size != position + payload_at
            or not data.startswith(message_format, format_at)
        ):
            break
        ids.append(delivery_id)
        if tags is not None:
            tags.append(data[tag_at:format_at])
        payloads.append(data[position + payload_at : end])
        position = end
        count_max -= 1
    return position


def parse_disposition(buffer: bytes, position: int, end: int) -> ParsedDisposition:
    """Read the disposition that begins at `position` in a frame that ends at `end`."""
    try:
        if buffer[position + 1] == 0x53 and buffer[position + 3] == 0xC0:
            after = position + 5 + buffer[position + 4]
            count = buffer[position + 5]
            at = position + 6
        else:
            at, after, count = list_at(buffer, position, end)
        if count < 2:
            raise DecodeError("disposition comes without its role or its first")
        role, at = flag_at(buffer, at, "disposition.role")
        if buffer[at] == 0x70:
            first: int = _UINT32.unpack_from(buffer, at + 1)[0]
            at += 5
        else:
            first, at = uint_at(buffer, at, "disposition.first")
        last = -1
        if count > 2:
            if buffer[at] == 0x40:
                at += 1
            else:
                last, at = uint_at(buffer, at, "disposition.last")
    except READ_ERRORS:
        raise cut() from None
    if at > after or after > end:
        raise cut()
    if role < 0 or first < 0:
        raise DecodeError("disposition comes without its role or its first")
    if last < 0:
        last = first  # absent means first [2.7.6]
    tail = buffer[at:after]
    fields = count - 3 if count > 2 else 0
    rest = _disposition_tails.get(tail)
    if rest is None or rest[3] != fields:
        rest = _read_disposition_tail(tail, fields)
    return ParsedDisposition(role == 1, first, last, rest[0], rest[1], rest[2])


def parse_flow(buffer: bytes, position: int, end: int) -> ParsedFlow:
    """Read the flow that begins at `position` in a frame that ends at `end`."""
    numbers = [-1, -1, -1, -1, -1, -1, -1, -1]
    drain = -1
    echo = -1
    try:
        at, after, count = list_at(buffer, position, end)
        for index in range(min(count, 8)):
            numbers[index], at = uint_at(buffer, at, "flow")
        if count > 8:
            drain, at = flag_at(buffer, at, "flow.drain")
        if count > 9:
            echo, at = flag_at(buffer, at, "flow.echo")
    except READ_ERRORS:
        raise cut() from None
    if count > 10 and at < after <= end:
        at = skip(buffer, at, after)
    if at != after or after > end or count > 11:
        raise cut()
    if numbers[1] < 0 or numbers[2] < 0 or numbers[3] < 0:
        raise DecodeError("flow comes without one of its windows or its next-outgoing-id")
    return ParsedFlow(
        numbers[0],
        numbers[1],
        numbers[2],
        numbers[3],
        numbers[4],
        numbers[5],
        numbers[6],
        numbers[7],
        drain == 1,
        echo == 1,
    )


def _short_transfer(buffer: bytes, at: int, after: int, count: int, end: int) -> ParsedTransfer:
    """Read a transfer of three fields or fewer: a continuation that repeats nothing."""
    delivery_id = -1
    tag: bytes | None = None
    if count < 1:
        raise DecodeError("transfer comes without its handle")
    handle, at = uint_at(buffer, at, "transfer.handle")
    if count > 1:
        delivery_id, at = uint_at(buffer, at, "transfer.delivery-id")
    if count > 2:
        tag, at = binary_at(buffer, at, "transfer.delivery-tag")
    if at != after or after > end or handle < 0:
        raise cut()
    return ParsedTransfer(
        handle, delivery_id, tag, -1, None, False, -1, None, False, False, False, -1, after
    )


def _read_transfer_tail(tail: bytes, count: int) -> _TransferTail:
    if count > 7:
        raise DecodeError("transfer has more fields than are known")
    raw = raw_fields(tail, count, 7)
    rcv_settle_mode = -1
    if raw[2]:
        if raw[2][0] != 0x50:
            raise DecodeError("transfer.rcv-settle-mode is not a ubyte")
        rcv_settle_mode = raw[2][1]
    settled = _flag_of(raw[0], "transfer.settled")
    rest: _TransferTail = (
        None if settled < 0 else settled == 1,
        _flag_of(raw[1], "transfer.more") == 1,
        rcv_settle_mode,
        raw[3] or None,
        _flag_of(raw[4], "transfer.resume") == 1,
        _flag_of(raw[5], "transfer.aborted") == 1,
        _flag_of(raw[6], "transfer.batchable") == 1,
        count,
    )
    if len(tail) <= _TAIL_LENGTH_MAX:
        if len(_transfer_tails) >= _TAILS_MAX:
            _transfer_tails.clear()
        _transfer_tails[tail] = rest
    return rest


def _read_disposition_tail(tail: bytes, count: int) -> _DispositionTail:
    if count > 3:
        raise DecodeError("disposition has more fields than are known")
    raw = raw_fields(tail, count, 3)
    rest: _DispositionTail = (
        _flag_of(raw[0], "disposition.settled") == 1,
        raw[1],
        _flag_of(raw[2], "disposition.batchable") == 1,
        count,
    )
    if len(tail) <= _TAIL_LENGTH_MAX:
        if len(_disposition_tails) >= _TAILS_MAX:
            _disposition_tails.clear()
        _disposition_tails[tail] = rest
    return rest


def _flag_of(raw: bytes, name: str) -> int:
    return flag_at(raw, 0, name)[0] if raw else -1


# What the writers are put together from.
_NULL: Final = b"\x40"
_UINTS: Final = [encode(Uint(number)) for number in range(256)]
_TAG_HEADS: Final = [b"\xa0" + bytes((length,)) for length in range(TAG_SIZE_MAX + 1)]
_TRANSFER_HEADS: Final = [b"\x00\x53\x14\xc0" + bytes((size, 11)) for size in range(256)]
_FLAG: Final[dict[bool | None, bytes]] = {True: b"\x41", False: b"\x42", None: b"\x40"}
_TRANSFER_ENDS: Final[dict[tuple[bool | None, bool, bool], bytes]] = {
    (settled, more, batchable): _FLAG[settled]
    + _FLAG[more]
    + b"\x40\x40\x42\x42"
    + _FLAG[batchable]
    for settled in (None, False, True)
    for more in (False, True)
    for batchable in (False, True)
}


def build_transfer(
    handle: int,
    delivery_id: int,
    delivery_tag: bytes | None,
    message_format: int,
    settled: bool | None,
    more: bool,
    *,
    rcv_settle_mode: int = -1,
    state: bytes | None = None,
    resume: bool = False,
    aborted: bool = False,
    batchable: bool = False,
) -> bytes:
    """Write a transfer without its payload; -1 and None stand for null."""
    tag = delivery_tag or b""
    rare = rcv_settle_mode >= 0 or state is not None or resume or aborted
    if rare or len(tag) > TAG_SIZE_MAX:
        whole = Transfer(
            handle=handle,
            delivery_id=None if delivery_id < 0 else delivery_id,
            delivery_tag=delivery_tag,
            message_format=None if message_format < 0 else message_format,
            settled=settled,
            more=more,
            rcv_settle_mode=None if rcv_settle_mode < 0 else rcv_settle_mode,
            state=None if state is None else Encoded(state),
            resume=resume,
            aborted=aborted,
            batchable=batchable,
        )
        return encode_composite(whole)
    fields = (
        _uint(handle)
        + _uint(delivery_id)
        + (_NULL if delivery_tag is None else _TAG_HEADS[len(tag)])
        + tag
        + _uint(message_format)
        + _TRANSFER_ENDS[(settled, more, batchable)]
    )
    return _TRANSFER_HEADS[len(fields) + 1] + fields


def build_disposition(
    role: bool, first: int, last: int, settled: bool, state: bytes, batchable: bool = False
) -> bytes:
    """Write a disposition; an empty state is null."""
    fields = (
        _FLAG[role]
        + _uint(first)
        + _uint(last)
        + _FLAG[settled]
        + (state or _NULL)
        + _FLAG[batchable]
    )
    return _performative(0x15, 6, fields)


def build_flow(
    *,
    next_incoming_id: int,
    incoming_window: int,
    next_outgoing_id: int,
    outgoing_window: int,
    handle: int = -1,
    delivery_count: int = -1,
    link_credit: int = -1,
    available: int = -1,
    drain: bool = False,
    echo: bool = False,
) -> bytes:
    """Write a flow; -1 stands for null."""
    fields = (
        _uint(next_incoming_id)
        + _uint(incoming_window)
        + _uint(next_outgoing_id)
        + _uint(outgoing_window)
        + _uint(handle)
        + _uint(delivery_count)
        + _uint(link_credit)
        + _uint(available)
        + _FLAG[drain]
        + _FLAG[echo]
        + _NULL
    )
    return _performative(0x13, 11, fields)


def _uint(number: int) -> bytes:
    if 0 <= number < 256:
        return _UINTS[number]
    return _NULL if number < 0 else b"\x70" + _UINT32.pack(number)


def _performative(code: int, count: int, fields: bytes) -> bytes:
    size = len(fields) + 1
    if size < 256:
        return bytes((0, 0x53, code, 0xC0, size, count)) + fields
    return bytes((0, 0x53, code, 0xD0)) + _UINT32.pack(size + 3) + _UINT32.pack(count) + fields
