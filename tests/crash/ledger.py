"""What the clients know: which sends and settlements were acknowledged, what came, under which
number. It notes each broken promise the moment it is seen."""

import hashlib
from typing import Final

ID_SIZE: Final = 8


class Ledger:
    """The books of one run; they outlive every broker process in it."""

    def __init__(self) -> None:
        self.sent = 0
        self.accepted: set[int] = set()
        self.batches: list[list[int]] = []
        # Settlements that were asked for, and those that the broker confirmed.
        self.completing: set[int] = set()
        self.completed: set[int] = set()
        self.burying: set[int] = set()
        self.buried: set[int] = set()
        self.abandoned: set[int] = set()
        self.numbers: dict[int, int] = {}
        self.sequences: dict[int, int] = {}
        self.repeated = 0
        self.problems: list[str] = []

    def next_id(self) -> int:
        """A message that was never sent before."""
        self.sent += 1
        return self.sent

    def next_batch(self, count: int) -> list[int]:
        """Messages that are stored all or none."""
        self.batches.append([self.next_id() for _ in range(count)])
        return self.batches[-1]

    def came(self, body: bytes, sequence: int, *, is_dead: bool) -> int:
        """A message was received; answers its id."""
        id = int.from_bytes(body[:ID_SIZE], "big")
        if not 0 < id <= self.sent or body != content(id):
            self.problems.append(f"{sequence} has a body that nobody sent")
            return id
        if self.numbers.setdefault(sequence, id) != id:
            self.problems.append(f"{sequence} was {self.numbers[sequence]} and is {id} now")
        if self.sequences.setdefault(id, sequence) != sequence:
            self.problems.append(f"{id} came as {self.sequences[id]} and as {sequence}")
        if id in self.completed:
            self.problems.append(f"{id} returned after its completion was acknowledged")
        if id in self.buried and not is_dead:
            self.problems.append(f"{id} returned after its dead-lettering was acknowledged")
        self.repeated += id in self.completing
        return id

    def close(self, found: set[int]) -> None:
        """The broker is empty now and `found` came out of it at the end: do the books balance?"""
        lost = self.accepted - self.completing - found
        if lost:
            self.problems.append(f"{len(lost)} acknowledged messages are lost: {some(lost)}")
        gone = self.buried - self.completing - found
        if gone:
            self.problems.append(f"{len(gone)} dead letters are lost: {some(gone)}")
        for batch in self.batches:
            there = [id for id in batch if id in self.sequences]
            if there and len(there) != len(batch):
                self.problems.append(f"of the batch {batch} only {there} were stored")

    def summary(self) -> str:
        counts = {
            "sent": self.sent,
            "acknowledged": len(self.accepted),
            "completed": len(self.completed),
            "dead-lettered": len(self.buried),
            "again after a completion in doubt": self.repeated,
        }
        return ", ".join(f"{count} {name}" for name, count in counts.items())


def content(id: int) -> bytes:
    """The body of a message: its id, then bytes that only this id has, more or less of them."""
    head = id.to_bytes(ID_SIZE, "big")
    return head + hashlib.blake2b(head, digest_size=32).digest() * (id % 40)


def some(ids: set[int]) -> str:
    return ", ".join(str(id) for id in sorted(ids)[:10])
