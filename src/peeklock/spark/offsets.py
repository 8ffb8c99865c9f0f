"""What Spark writes into its checkpoint: exact sequence numbers, packed, and positions.

An offset is compared as JSON text, stored for every batch and repeated in every progress event:
keys come in a fixed order, and ten thousand scattered numbers take some fifteen kilobytes.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, final

VERSION: Final = 1
_ALPHABET: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
_DIGITS: Final = {letter: digit for digit, letter in enumerate(_ALPHABET)}
_MORE: Final = 32
_LOW_BITS: Final = 48
NUMBER_MAX: Final = (1 << 63) - 1


class OffsetProblem(ValueError):
    """An offset that this reader did not write."""


def partition_of(number: int) -> int:
    """Return which partition of its entity a sequence number belongs to."""
    return number >> _LOW_BITS


def first_number(partition: int) -> int:
    """Return the number below which a partition has none."""
    return partition << _LOW_BITS


def pack(numbers: Iterable[int]) -> str:
    """Write a set of sequence numbers as `partition:runs`, joined by semicolons.

    A run is the distance from the end of the one before and how many follow its first number; both
    are written five bits to a letter, the lowest first.
    """
    parts: list[str] = []
    text: list[str] = []
    partition = -1
    before = -1
    run_from = run_to = -2
    for number in sorted(set(numbers)):
        if not 0 <= number <= NUMBER_MAX:
            raise ValueError(f"{number} is no sequence number")
        if number == run_to + 1 and number >> _LOW_BITS == partition:
            run_to = number
            continue
        if run_to >= 0:
            _write(text, run_from - before - 1)
            _write(text, run_to - run_from)
            before = run_to
        if number >> _LOW_BITS != partition:
            if text:
                parts.append(f"{partition}:{''.join(text)}")
            text = []
            partition = number >> _LOW_BITS
            before = first_number(partition) - 1
        run_from = run_to = number
    if run_to >= 0:
        _write(text, run_from - before - 1)
        _write(text, run_to - run_from)
        parts.append(f"{partition}:{''.join(text)}")
    return ";".join(parts)


def unpack(text: str) -> list[int]:
    """Read the numbers again, in ascending order."""
    numbers: list[int] = []
    for part in filter(None, text.split(";")):
        partition, colon, runs = part.partition(":")
        if not colon or not partition.isascii() or not partition.isdigit():
            raise OffsetProblem(f"'{part[:40]}' is no packed list of sequence numbers")
        before = first_number(int(partition)) - 1
        values = list(_read(runs))
        if len(values) % 2:
            raise OffsetProblem("a packed list of sequence numbers that ends too early")
        for gap, more in zip(values[::2], values[1::2], strict=True):
            first = before + 1 + gap
            before = first + more
            numbers.extend(range(first, before + 1))
    return numbers


def _write(text: list[str], value: int) -> None:
    while value >= _MORE:
        text.append(_ALPHABET[value & 31 | _MORE])
        value >>= 5
    text.append(_ALPHABET[value])


def _read(text: str) -> Iterator[int]:
    value = shift = 0
    for letter in text:
        digit = _DIGITS.get(letter)
        if digit is None or shift > 60:
            raise OffsetProblem("a packed list of sequence numbers with something else in it")
        value |= (digit & 31) << shift
        shift += 5
        if digit < _MORE:
            yield value
            value = shift = 0
    if shift:
        raise OffsetProblem("a packed list of sequence numbers that ends too early")


@final
@dataclass(frozen=True, slots=True)
class ClaimOffset:
    """The end of a batch in claim mode: it names exactly the messages of that batch."""

    entity: str
    counter: int
    packed: str

    @property
    def numbers(self) -> list[int]:
        """The messages of the batch, in ascending order."""
        return unpack(self.packed)

    def json(self) -> dict[str, Any]:
        """Return it as Spark keeps it."""
        return {"v": VERSION, "m": "claim", "e": self.entity, "n": self.counter, "c": self.packed}

    @staticmethod
    def read(offset: dict[str, Any], entity: str) -> "ClaimOffset":
        """Take back what `json` gave, if it was for this entity."""
        _check(offset, "claim", entity)
        counter, packed = offset.get("n"), offset.get("c")
        if not isinstance(counter, int) or not isinstance(packed, str):
            raise OffsetProblem(f"{offset!r} is not an offset of mode claim")
        return ClaimOffset(entity, counter, packed)


@final
@dataclass(frozen=True, slots=True)
class PlaceOffset:
    """The end of a batch where reading changes nothing: how far it went in each partition."""

    mode: str
    entity: str
    places: dict[int, int]
    # What was asked for when nothing had been read yet, to be found out with the first batch.
    start: str = ""

    def json(self) -> dict[str, Any]:
        """Return it as Spark keeps it, partitions in their order."""
        places = {str(index): self.places[index] for index in sorted(self.places)}
        offset: dict[str, Any] = {"v": VERSION, "m": self.mode, "e": self.entity, "p": places}
        if self.start:
            offset["s"] = self.start
        return offset

    @staticmethod
    def read(offset: dict[str, Any], mode: str, entity: str) -> "PlaceOffset":
        """Take back what `json` gave, if it was for this mode and entity."""
        _check(offset, mode, entity)
        places, start = offset.get("p"), offset.get("s", "")
        if not isinstance(places, dict) or not isinstance(start, str):
            raise OffsetProblem(f"{offset!r} is not an offset of mode {mode}")
        return PlaceOffset(mode, entity, {int(key): int(at) for key, at in places.items()}, start)


def _check(offset: dict[str, Any], mode: str, entity: str) -> None:
    if offset.get("v") != VERSION:
        raise OffsetProblem(f"the checkpoint has an offset that this version cannot read: {offset}")
    if offset.get("m") != mode or offset.get("e") != entity:
        raise OffsetProblem(
            f"the checkpoint belongs to a query that reads '{offset.get('e')}' in mode "
            f"{offset.get('m')}, not '{entity}' in mode {mode}; use another checkpointLocation"
        )
