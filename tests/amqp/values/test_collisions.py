"""Maps whose keys a peer has chosen so that they collide: the steps are counted, not the time."""

from uuid import UUID

import pytest

from peeklock.amqp.errors import DecodeError
from peeklock.amqp.frames.performatives import Attach
from peeklock.amqp.messages.message import VALUE_BODY, AmqpMessage, decode_message, encode_message
from peeklock.amqp.values.codec import NUMBER_KEYS_ALIKE_MAX, NUMBER_KEYS_MAX, decode
from peeklock.amqp.values.composites import decode_composite, encode_composite
from peeklock.amqp.values.encoder import encode
from peeklock.amqp.values.types import Symbol, Ulong

# Python's hash of a number is its rest by this.
MODULUS = (1 << 61) - 1


def colliding(count: int) -> list[UUID]:
    return [UUID(int=7 + number * MODULUS) for number in range(count)]


def test_uuid_keys_with_one_hash_are_refused_after_a_few_comparisons(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    raw = encode(dict.fromkeys(colliding(3600)))
    compared = 0
    plain = UUID.__eq__

    def counting(self: UUID, other: object) -> bool:
        nonlocal compared
        compared += 1
        return plain(self, other)

    monkeypatch.setattr(UUID, "__eq__", counting)
    with pytest.raises(DecodeError, match="same hash"):
        decode(raw)
    assert compared <= NUMBER_KEYS_ALIKE_MAX**2


def test_an_attach_and_a_request_are_refused_alike() -> None:
    attach = encode_composite(
        Attach(name="a", handle=0, role=True, properties=dict.fromkeys(colliding(100)))
    )
    with pytest.raises(DecodeError, match="same hash"):
        decode_composite(attach, 0, len(attach))
    request = encode_message(AmqpMessage(body_kind=VALUE_BODY, body=dict.fromkeys(colliding(100))))
    with pytest.raises(DecodeError, match="same hash"):
        decode_message(request)


def test_number_keys_of_one_frame_are_counted_over_all_its_maps() -> None:
    half = NUMBER_KEYS_MAX // 2
    maps = [{Ulong(number): None for number in range(half)} for _ in range(2)]
    assert decode(encode(maps))[0] == maps
    with pytest.raises(DecodeError, match="neither text nor binary"):
        decode(encode([*maps, {1.5: None}]))


def test_text_keys_are_as_many_as_their_bytes_allow() -> None:
    texts: dict[object, None] = {f"{number}": None for number in range(5_000)}
    texts |= {Symbol(f"s{number}"): None for number in range(5_000)}
    texts |= {number.to_bytes(2, "big"): None for number in range(5_000)}
    assert decode(encode(texts))[0] == texts


def test_different_uuids_are_keys_like_any_others() -> None:
    keys = {UUID(int=number << 40): number for number in range(NUMBER_KEYS_MAX)}
    assert decode(encode(keys))[0] == keys
