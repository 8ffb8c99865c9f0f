"""What the clients know: which sends and settlements were acknowledged, what came, under which
number. It notes each broken promise the moment it is seen."""

import hashlib
from collections.abc import Callable
from typing import Final

ID_SIZE: Final = 8
# How far back an id is chosen that is sent again.
RECENT: Final = 300


class Ledger:
    """The books of what goes to one address; they outlive every broker process of a run."""

    def __init__(self, name: str, *places: "Place") -> None:
        self.name = name
        self.places = places
        self.sent = 0
        self.accepted: set[int] = set()
        self.batches: list[list[int]] = []
        # Refused while a store was away: whether they were stored is in doubt.
        self.refused = 0
        self.problems: list[str] = []
        for place in places:
            place.ledger = self

    def next_id(self) -> int:
        """A message that was never sent before."""
        self.sent += 1
        return self.sent

    def next_batch(self, count: int) -> list[int]:
        """Messages that are stored all or none."""
        self.batches.append([self.next_id() for _ in range(count)])
        return self.batches[-1]

    def recent(self, random_source: float) -> int:
        """A message that was sent before, whatever became of it: just now, or any time ago."""
        back = RECENT if self.sent % 2 else self.sent
        return max(1, self.sent - int(random_source * back))

    def accept(self, ids: list[int]) -> None:
        """The broker has taken these."""
        self.accepted.update(ids)
        for place in self.places:
            place.accept(ids)

    def content(self, id: int) -> bytes:
        """The body of a message: its id, then bytes that only it has, more or less of them."""
        head = id.to_bytes(ID_SIZE, "big")
        rest = hashlib.blake2b(head, key=self.name.encode(), digest_size=32).digest()
        return head + rest * (1 + id % 40)

    def close(self, found: dict["Place", set[int]]) -> None:
        """The broker is empty now and `found` came out of it at the end: do the books balance?"""
        for place in self.places:
            place.close(found[place])

    def summary(self) -> str:
        places = ", ".join(place.summary() for place in self.places)
        refused = f", {self.refused} refused" if self.refused else ""
        return f"{self.sent} sent, {len(self.accepted)} acknowledged{refused}; {places}"


def everything(_id: int) -> bool:
    return True


class Place:
    """The books of one place where messages come out: a queue, or a subscription that takes some
    of what goes to its topic. With `sessions`, message n stands in session n modulo that."""

    ledger: Ledger

    def __init__(
        self, address: str, takes: Callable[[int], bool] = everything, *, sessions: int = 0
    ) -> None:
        self.address = address
        self.takes = takes
        self.sessions = SessionBooks(sessions) if sessions else None
        # Settlements that were asked for, and those that the broker confirmed.
        self.completing: set[int] = set()
        self.completed: set[int] = set()
        self.burying: set[int] = set()
        self.buried: set[int] = set()
        self.abandoned: set[int] = set()
        self.arrivals: dict[int, int] = {}
        self.numbers: dict[int, int] = {}
        self.sequences: dict[int, int] = {}
        self.repeated = 0
        self.refused = 0

    @property
    def dead_letters(self) -> str:
        return f"{self.address}/$deadletterqueue"

    def note(self, problem: str) -> None:
        self.ledger.problems.append(f"{self.address}: {problem}")

    def accept(self, ids: list[int]) -> None:
        if self.sessions is not None:
            self.sessions.wait_for([id for id in ids if not self.is_asked(id)])

    def is_asked(self, id: int) -> bool:
        return id in self.completing or id in self.burying

    def came(self, body: bytes, sequence: int, *, is_dead: bool) -> int:
        """A message was received; answers its id."""
        id = int.from_bytes(body[:ID_SIZE], "big")
        if not 0 < id <= self.ledger.sent or body != self.ledger.content(id):
            self.note(f"{sequence} has a body that nobody sent")
            return id
        self.arrivals[id] = self.arrivals.get(id, 0) + 1
        if not self.takes(id):
            self.note(f"{id} came, which this place does not take")
        # A dead letter keeps its number.
        if self.numbers.setdefault(sequence, id) != id:
            self.note(f"{sequence} was {self.numbers[sequence]} and is {id} now")
        if self.sequences.setdefault(id, sequence) != sequence:
            self.note(f"{id} came as {self.sequences[id]} and as {sequence}")
        if id in self.completed:
            self.note(f"{id} returned after its completion was acknowledged")
        if id in self.buried and not is_dead:
            self.note(f"{id} returned after its dead-lettering was acknowledged")
        if self.sessions is not None and not is_dead:
            for earlier in self.sessions.overtaken(id):
                self.note(f"{id} came before {earlier} of the same session")
        self.repeated += id in self.completing
        return id

    def complete(self, id: int) -> None:
        """A completion is asked for."""
        self.completing.add(id)
        if self.sessions is not None:
            self.sessions.settle(id)

    def bury(self, id: int) -> None:
        """A dead-lettering is asked for."""
        self.burying.add(id)
        if self.sessions is not None:
            self.sessions.settle(id)

    def close(self, found: set[int]) -> None:
        expected = {id for id in self.ledger.accepted if self.takes(id)}
        lost = expected - self.completing - found
        if lost:
            self.note(f"{len(lost)} acknowledged messages are lost: {some(lost)}")
        gone = self.buried - self.completing - found
        if gone:
            self.note(f"{len(gone)} dead letters are lost: {some(gone)}")
        for batch in self.ledger.batches:
            wanted = [id for id in batch if self.takes(id)]
            there = [id for id in wanted if id in self.sequences]
            if there and there != wanted:
                self.note(f"of the batch {batch} only {there} were stored")
        if self.sessions is not None:
            self.sessions.close(self)

    def summary(self) -> str:
        counts = {
            "completed": len(self.completed),
            "dead-lettered": len(self.buried),
            "again after a completion in doubt": self.repeated,
            "settlements refused": self.refused,
        }
        said = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
        return f"{self.address}: {said}"


class SessionBooks:
    """Order and state of the sessions of one place."""

    def __init__(self, count: int) -> None:
        self.count = count
        # What is acknowledged and nobody has asked to settle: it comes before anything later.
        self._waiting: dict[int, set[int]] = {session: set() for session in range(count)}
        # The states that each session can have: the one that is certain, then those in doubt.
        self._states: dict[int, list[bytes | None]] = {session: [None] for session in range(count)}
        self.states_seen = 0

    def names(self) -> list[str]:
        return [str(session) for session in range(self.count)]

    def wait_for(self, ids: list[int]) -> None:
        for id in ids:
            self._waiting[id % self.count].add(id)

    def settle(self, id: int) -> None:
        self._waiting[id % self.count].discard(id)

    def overtaken(self, id: int) -> list[int]:
        return sorted(other for other in self._waiting[id % self.count] if other < id)

    def setting(self, name: str, state: bytes) -> None:
        """A state is asked for."""
        self._states[int(name)].append(state)

    def was_set(self, name: str, state: bytes) -> None:
        """The broker confirmed a state."""
        states = self._states[int(name)]
        self._states[int(name)] = states[states.index(state) :]

    def read(self, name: str, state: bytes | None, place: Place) -> None:
        """The broker told the state of a session."""
        self.states_seen += state is not None
        states = self._states[int(name)]
        if state not in states:
            place.note(f"the state of session {name} is {state!r}, not one of {states!r}")
        self._states[int(name)] = [state]

    def close(self, place: Place) -> None:
        """The numbers of a session's messages rise as they were sent."""
        last = dict.fromkeys(range(self.count), (0, 0))
        for sequence, id in sorted(place.numbers.items()):
            before, number = last[id % self.count]
            if id < before:
                place.note(f"{id} has the number {sequence}, and {before} before it has {number}")
            last[id % self.count] = (id, sequence)


class Deal:
    """One transaction: a message is completed and others are sent, or nothing of it is done."""

    def __init__(self, taken: int, arrival: int, given: list[int], *, fails: bool) -> None:
        self.taken = taken
        self.arrival = arrival
        self.given = given
        self.fails = fails
        self.is_committed = False


class Deals:
    """The books of transactions that take from one place and give to others."""

    def __init__(self, source: Place, sinks: list[Place]) -> None:
        self.source = source
        self.sinks = sinks
        self.all: list[Deal] = []
        self.attempted: set[int] = set()
        self.rolled_back = 0
        self.in_doubt = 0

    def begin(self, taken: int) -> Deal:
        """Every fifth message is tried in vain first."""
        fails = taken % 5 == 0 and taken not in self.attempted
        self.attempted.add(taken)
        given = [sink.ledger.next_id() for sink in self.sinks]
        self.all.append(Deal(taken, self.source.arrivals[taken], given, fails=fails))
        return self.all[-1]

    def committed(self, deal: Deal) -> None:
        deal.is_committed = True
        self.source.completed.add(deal.taken)
        for sink, id in zip(self.sinks, deal.given, strict=True):
            sink.ledger.accept([id])

    def close(self) -> None:
        """All or nothing. Comes before the other books are closed, because a deal that took effect
        is how its message was completed."""
        for deal in self.all:
            pairs = list(zip(self.sinks, deal.given, strict=True))
            there = [sink.address for sink, id in pairs if id in sink.sequences]
            if not there:
                continue
            self.source.completing.add(deal.taken)
            self.in_doubt += not deal.is_committed
            if len(there) != len(pairs):
                self.source.note(f"of the transaction on {deal.taken} only {there} took effect")
            if deal.fails:
                self.source.note(f"the transaction on {deal.taken} was rolled back and is there")
            if self.source.arrivals[deal.taken] > deal.arrival:
                self.source.note(f"{deal.taken} returned although its transaction took effect")

    def summary(self) -> str:
        done = sum(deal.is_committed for deal in self.all)
        return (
            f"{len(self.all)} transactions, {done} committed, {self.rolled_back} rolled back, "
            f"{self.in_doubt} took effect unanswered"
        )


def some(ids: set[int]) -> str:
    return ", ".join(str(id) for id in sorted(ids)[:10])
