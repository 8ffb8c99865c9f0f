"""Faults on demand: what is to go wrong, where, how often; and whose turn it is.

A fault waits for operations of its kind at its entity and strikes when its turn has come: after
some that pass, so many times, each with a probability that a seed makes the same in every run.
"""

import asyncio
import random
from dataclasses import KW_ONLY, dataclass, field
from typing import Final, final

from peeklock.entity import refusals
from peeklock.gateway.refusals import WIRE_FORMS

# What goes wrong.
LOSE_LOCK: Final = "lose-lock"
DROP_ANSWER: Final = "drop-answer"
DELAY_ANSWER: Final = "delay-answer"
DETACH: Final = "detach"
SERVER_BUSY: Final = "server-busy"
DUPLICATE_DELIVERY: Final = "duplicate-delivery"
STALL_STORE: Final = "stall-store"
CUT_CONNECTION: Final = "cut-connection"

# What somebody asks an entity for.
SEND: Final = "send"
RECEIVE: Final = "receive"
SETTLE: Final = "settle"
COMPLETE: Final = "complete"  # a settlement, too
RENEW: Final = "renew"
REQUEST: Final = "request"
OPERATIONS: Final = (SEND, RECEIVE, SETTLE, COMPLETE, RENEW, REQUEST)
# In place of an operation: the fault does not wait for any.
NOW: Final = "now"

# At which operations each can strike; the first is meant where none is named.
_ANSWERED: Final = (SEND, SETTLE, COMPLETE, RENEW, REQUEST)
STRIKES_AT: Final[dict[str, tuple[str, ...]]] = {
    LOSE_LOCK: (SETTLE, COMPLETE, RENEW),
    DROP_ANSWER: _ANSWERED,
    DELAY_ANSWER: (*_ANSWERED, RECEIVE),
    DETACH: (*OPERATIONS, NOW),
    SERVER_BUSY: OPERATIONS,
    DUPLICATE_DELIVERY: (COMPLETE,),
    # Whatever is written to the store waits, so that it has no operation.
    STALL_STORE: (),
    CUT_CONNECTION: (*OPERATIONS, NOW),
}
# Which of them come before the operation is carried out, unless they are to come after it.
HAPPENS_EITHER_WAY: Final = frozenset({DETACH, CUT_CONNECTION})

_KINDS_BY_CONDITION: Final = {form.detaching: kind for kind, form in WIRE_FORMS.items()}
DETACH_CONDITION: Final = WIRE_FORMS[refusals.DETACHED].detaching


class FaultError(Exception):
    """A fault that cannot be; the text says why."""


@final
@dataclass(slots=True)
class Fault:
    """One fault; `count` of None is for ever, until it is removed."""

    kind: str
    entity: str | None = None
    _: KW_ONLY
    operation: str = ""
    count: int | None = 1
    after: int = 0
    probability: float = 1.0
    seed: int | None = None
    delay_ms: int = 0
    condition: str = DETACH_CONDITION
    is_stored: bool = False
    # Given when it is added.
    namespace: str = ""
    number: int = 0
    struck: int = 0
    _chance: random.Random = field(default_factory=random.Random)

    def __post_init__(self) -> None:
        places = STRIKES_AT.get(self.kind)
        if places is None:
            raise FaultError(f"'{self.kind}' is no fault; the faults are {', '.join(STRIKES_AT)}.")
        if places and not self.operation:
            self.operation = places[0]
        if self.operation not in places and (places or self.operation):
            text = f"{self.kind} cannot happen at '{self.operation}'"
            raise FaultError(f"{text}; it happens at {', '.join(places) or 'every write'}.")
        if self.condition not in _KINDS_BY_CONDITION:
            there = ", ".join(sorted(_KINDS_BY_CONDITION))
            raise FaultError(f"Links are not detached with '{self.condition}', but with {there}.")
        if self.count is not None and self.count < 1:
            raise FaultError("A fault happens at least once: count must be 1 or more.")
        if self.after < 0 or self.delay_ms < 0:
            raise FaultError("after and delay cannot be negative.")
        if self.kind == STALL_STORE:
            self._stalls()
        if not 0 < self.probability <= 1:
            raise FaultError("probability must be above 0 and at most 1.")
        if self.kind == DELAY_ANSWER and not self.delay_ms:
            raise FaultError(f"{DELAY_ANSWER} needs a delay.")
        if self.is_stored and self.kind not in HAPPENS_EITHER_WAY:
            raise FaultError(f"{self.kind} cannot be told to come after the operation.")
        if self.is_stored and self.operation in (RECEIVE, NOW):
            raise FaultError(f"'{self.operation}' has no answer that a fault could come after.")
        self._chance.seed(self.seed)

    def _stalls(self) -> None:
        """It is there until it is removed, or for as long as its delay says."""
        if self.count not in (1, None) or self.after or self.probability != 1:
            text = f"{STALL_STORE} holds every write until it is removed"
            raise FaultError(f"{text}: count, after and probability mean nothing there.")
        self.count = None

    @property
    def refusal_kind(self) -> str:
        """What its links are refused for."""
        return _KINDS_BY_CONDITION[self.condition]

    @property
    def is_over(self) -> bool:
        """Whether it has happened as often as it was to."""
        return self.count is not None and self.struck >= self.count

    def is_at(self, namespace: str, path: str) -> bool:
        """Tell whether it waits at this entity."""
        if self.namespace != namespace:
            return False
        return self.entity is None or self.entity.lower() == path.lower()

    def strikes(self) -> bool:
        """Tell whether this is its turn, and count it."""
        if self.after > 0:
            self.after -= 1
            return False
        if self.probability < 1 and self._chance.random() >= self.probability:
            return False
        self.struck += 1
        return True


@final
class Faults:
    """All faults that wait, of every namespace, in the order in which they were added."""

    def __init__(self) -> None:
        self._waiting: Final[dict[int, Fault]] = {}
        # Stores that are stalled wait for these.
        self._gates: Final[dict[int, asyncio.Event]] = {}
        self._last = 0
        self._is_over = False

    def add(self, namespace: str, fault: Fault) -> Fault:
        """Let a fault wait for its turn; a store is stalled from now on."""
        if self._is_over:
            raise FaultError("The broker stops.")
        self._last += 1
        fault.namespace = namespace
        fault.number = self._last
        self._waiting[fault.number] = fault
        if fault.kind == STALL_STORE:
            self._gates[fault.number] = asyncio.Event()
            if fault.delay_ms:
                loop = asyncio.get_running_loop()
                loop.call_later(fault.delay_ms / 1000, self.remove, fault.number)
        return fault

    def all(self, namespace: str | None = None) -> list[Fault]:
        """List those that wait, of one namespace or of all."""
        return [
            fault
            for fault in self._waiting.values()
            if namespace is None or fault.namespace == namespace
        ]

    def remove(self, number: int) -> bool:
        """Let one happen no more; answers whether it was there."""
        gate = self._gates.pop(number, None)
        if gate is not None:
            gate.set()
        return self._waiting.pop(number, None) is not None

    def clear(self, namespace: str) -> None:
        """Remove all of a namespace."""
        for fault in self.all(namespace):
            self.remove(fault.number)

    def end(self) -> None:
        """Nothing goes wrong any more: a broker that stops waits for what is written."""
        self._is_over = True
        for fault in self.all():
            self.remove(fault.number)

    @property
    def is_empty(self) -> bool:
        """Whether nothing goes wrong anywhere."""
        return not self._waiting

    def next(self, namespace: str, path: str, *operations: str) -> Fault | None:
        """Give the fault that strikes at an operation, by any of its names; what is over goes."""
        for fault in list(self._waiting.values()):
            is_meant = fault.operation in operations and fault.is_at(namespace, path)
            if is_meant and fault.strikes():
                if fault.is_over:
                    self.remove(fault.number)
                return fault
        return None

    def gate(self, namespace: str, path: str) -> asyncio.Event | None:
        """Give what a write of this entity has to wait for; None where its store is well."""
        for number, gate in self._gates.items():
            fault = self._waiting[number]
            if fault.is_at(namespace, path):
                fault.struck += 1
                return gate
        return None
