"""A management node in the same process: the real partitions behind the operations on claims."""

from typing import Any

from peeklock.amqp.messages.message import DATA_BODY, encode_message
from peeklock.amqp.messages.message import AmqpMessage as AmqpMessage
from peeklock.amqp.messages.message_forms import Properties
from peeklock.amqp.values.constructors import LONG
from peeklock.amqp.values.types import Array, Int
from peeklock.client.exceptions import ServiceBusError, from_condition
from peeklock.entity import commands as ask
from peeklock.entity import replies as told
from peeklock.entity.commands import ABANDON, COMPLETE, DEAD, DEAD_LETTER, MAIN, RELEASE
from peeklock.entity.deliveries import Delivery
from peeklock.entity.message import Message, Traits
from peeklock.gateway.amqp.messages.translate import outgoing, without_body
from peeklock.gateway.amqp.nodes.outcomes import changes_of
from tests.entity.origins import by
from tests.entity.partition_harness import QueueHarness

PEEK_BYTES = 262_144
_OUTCOMES = {
    "completed": COMPLETE,
    "abandoned": ABANDON,
    "released": RELEASE,
    "suspended": DEAD_LETTER,
}


class ManagementServer:
    """Answers what the gateway would, without a wire: names and shapes are those of the wire."""

    def __init__(self, partitions: int = 1, **properties: Any) -> None:
        properties.setdefault("delivery_count_max", 10)
        self.partitions = [
            QueueHarness(index=index, memory=1 << 30, **properties) for index in range(partitions)
        ]
        self.has_sessions = bool(properties.get("requires_session"))

    def send(self, *bodies: str, partition: int = 0, session: str | None = None) -> list[int]:
        harness = self.partitions[partition]
        first = harness.partition.next_sequence
        messages = [
            Message(b"", _bare(body, session), Traits(session_id=session)) for body in bodies
        ]
        tags = list(range(len(bodies)))
        assert told.SendsAccepted(by("sender"), tags) in harness.ask(
            ask.SendMany(by("sender"), tags, messages)
        )
        return list(range(first, harness.partition.next_sequence))

    def restart(self) -> None:
        for partition in self.partitions:
            partition.restart()

    def counts(self) -> tuple[int, int]:
        """How many messages there are, and how many dead letters."""
        counted = [partition.count() for partition in self.partitions]
        return (
            sum(one.active + one.claimed + one.locked + one.deferred for one in counted),
            sum(one.dead_letter for one in counted),
        )

    # --- the operations

    def manage(
        self,
        operation: str,
        arguments: dict[Any, Any],
        sub_queue: str = "",
        *,
        is_repeatable: bool = True,
    ) -> dict[Any, Any]:
        lane = DEAD if sub_queue else MAIN
        name = operation.partition(":")[2].replace("-", "_")
        answer: dict[Any, Any] = getattr(self, f"_{name}")(arguments, lane)
        return answer

    def _claim_messages(self, asked: dict[str, Any], lane: int) -> dict[Any, Any]:
        upto = None
        if "upto" in asked:
            upto = {number >> 48: number for number in asked["upto"].items}
        count, size = int(asked["message-count"]), int(asked["max-bytes"])
        made: list[told.ClaimsMade] = []
        limit, taken = count, 0
        for partition in self.partitions:
            command = ask.ClaimMessages(
                by("desk"),
                7,
                lane,
                asked["owner"],
                asked["epoch"],
                count,
                size,
                int(asked["claim-timeout"]),
                upto,
                int(asked["session-count"]),
                limit - taken,
                taken,
            )
            reply = self._reply(partition, command, told.ClaimsMade)
            made.append(reply)
            taken += len(reply.sequences)
            limit = min(limit, reply.limit)
            size = max(1, size - sum(reply.sizes)) if size else 0
            if taken >= limit:
                break
        if not taken:
            return {}
        answer: dict[Any, Any] = {
            "sequence-numbers": Array(LONG, [n for one in made for n in one.sequences]),
            "sizes": Array(0x71, [Int(size) for one in made for size in one.sizes]),
        }
        if self.has_sessions:
            answer["session-ids"] = [name for one in made for name in one.session_ids or []]
        return answer

    def _list_claims(self, asked: dict[str, Any], lane: int) -> dict[Any, Any]:
        count = int(asked["message-count"])
        listed = [
            self._reply(
                partition,
                ask.ListClaims(
                    by("desk"),
                    7,
                    lane,
                    asked["owner"],
                    asked.get("epoch", 0),
                    asked["from-sequence-number"],
                    count,
                ),
                told.ClaimsListed,
            )
            for partition in self.partitions
        ]
        oldest = [one.oldest_enqueued_at for one in listed if one.oldest_enqueued_at]
        answer: dict[Any, Any] = {
            "epoch": max(one.epoch for one in listed),
            "sequence-numbers": Array(LONG, [n for one in listed for n in one.sequences][:count]),
            "sizes": Array(0x71, [Int(n) for one in listed for n in one.sizes][:count]),
            "attempts": Array(0x71, [Int(n) for one in listed for n in one.attempts][:count]),
            "last-sequence-numbers": Array(LONG, [n for one in listed for n in one.last_sequences]),
            "active-count": sum(one.active for one in listed),
            "oldest-enqueued": min(oldest) if oldest else None,
        }
        if self.has_sessions:
            names = [name for one in listed for name in one.session_ids or []]
            answer["session-ids"] = names[:count]
        return answer

    def _fetch_claims(self, asked: dict[str, Any], lane: int) -> dict[Any, Any]:
        payloads: list[bytes] = []
        for number in asked["sequence-numbers"].items:
            partition = self.partitions[number >> 48]
            command = ask.FetchClaims(by("desk"), 7, lane, asked["owner"], [number], 1 << 40)
            reply = self._reply(partition, command, told.ClaimsFetched)
            payloads += [
                self._encoded(partition, one, asked["omit-message-body"])
                for one in reply.deliveries
            ]
        messages = [{"message": payload} for payload in payloads]
        return {"messages": messages, "looked-at": Int(len(asked["sequence-numbers"].items))}

    def _settle_claims(self, asked: dict[str, Any], lane: int) -> dict[Any, Any]:
        numbers = asked["sequence-numbers"].items
        done = 0
        for partition in self.partitions:
            command = ask.SettleClaims(
                by("desk"),
                7,
                lane,
                asked["owner"],
                asked.get("epoch", 0),
                [number for number in numbers if number >> 48 == partition.index],
                ask.Settlement(
                    _OUTCOMES[asked["disposition-status"]],
                    changes_of(asked.get("properties-to-modify") or {}),
                    asked.get("deadletter-reason"),
                    asked.get("deadletter-description"),
                ),
            )
            done += self._reply(partition, command, told.Numbered).numbers[0]
        return {"message-count": Int(done)}

    def _peek_message(self, asked: dict[str, Any], lane: int) -> dict[Any, Any]:
        first, count = asked["from-sequence-number"], int(asked["message-count"])
        payloads: list[bytes] = []
        for partition in self.partitions:
            found = partition.peek(lane, first, count - len(payloads), PEEK_BYTES)
            payloads += [self._encoded(partition, one, asked["omit-message-body"]) for one in found]
            if len(payloads) >= count:
                break
        return {"messages": [{"message": payload} for payload in payloads]} if payloads else {}

    def _encoded(self, partition: QueueHarness, delivery: Delivery, omit_body: bool) -> bytes:
        if delivery.message is None:
            delivery.message = partition.journal.body(delivery.position)
        head, body = outgoing(delivery, is_peeked=True)
        return head + (without_body(body) if omit_body else body)

    def _reply(self, partition: QueueHarness, command: ask.Command, kind: type[Any]) -> Any:
        for reply in partition.ask(command):
            if isinstance(reply, kind):
                return reply
            if isinstance(reply, told.Refused):
                raise _refused(reply.refusal.kind, reply.refusal.text)
        raise AssertionError(f"no answer to {command!r}")


def _refused(kind: str, text: str) -> ServiceBusError:
    prefix = "com.peeklock:" if kind == "claim-fenced" else "com.microsoft:"
    return from_condition(prefix + kind, text)


def _bare(body: str, session: str | None) -> bytes:
    properties = Properties(message_id=body, group_id=session)
    written = AmqpMessage(properties=properties, body_kind=DATA_BODY, body=[body.encode()])
    return encode_message(written)
