"""What a sender says of a message beside its content: the object of `BrokerProperties`."""

import math
from dataclasses import dataclass
from typing import Any, Final, final

from peeklock.entity.message import NEVER, NO_DURATION
from peeklock.gateway.amqp.messages.translate import KEY_LENGTH_MAX, LIFE_MAX_MS
from peeklock.gateway.http.messages.documents import read_json
from peeklock.gateway.http.messages.instants import read_instant, read_timespan
from peeklock.gateway.http.messages.malformed import MalformedRequest

# Names with a limit of their own.
_KEYS: Final = frozenset({"MessageId", "SessionId", "PartitionKey", "ReplyToSessionId"})
_TEXTS: Final = (
    "MessageId",
    "SessionId",
    "PartitionKey",
    "ViaPartitionKey",
    "CorrelationId",
    "Label",
    "To",
    "ReplyTo",
    "ReplyToSessionId",
    "ContentType",
)
_NO_TEXTS: Final[dict[str, str]] = {}


@final
@dataclass(frozen=True, slots=True)
class BrokerProperties:
    """The texts by their names, the life of the message and when it is due."""

    texts: dict[str, str]
    time_to_live_ms: int
    scheduled_at: int

    @property
    def session_id(self) -> str | None:
        """The session that the message belongs to."""
        return self.texts.get("SessionId")

    @property
    def partition_key(self) -> str | None:
        """What decides about the partition of the message."""
        return self.texts.get("PartitionKey")


NONE: Final = BrokerProperties(_NO_TEXTS, NO_DURATION, NEVER)


def read_header(text: str) -> BrokerProperties:
    """Read the header of that name."""
    return read_properties(read_json(text, "The header BrokerProperties"))


def read_properties(document: Any) -> BrokerProperties:
    """Read the object; what only the broker says of a message, or nobody, is passed over.

    Whoever sends a received message again sends such properties, and they mean nothing then.
    """
    if not isinstance(document, dict):
        raise MalformedRequest("BrokerProperties must be a JSON object.")
    texts: dict[str, str] = {}
    for name in _TEXTS:
        value = document.get(name)
        if value is None:
            continue
        if not isinstance(value, str):
            raise MalformedRequest(f"{name} in BrokerProperties must be a string.")
        if name in _KEYS and len(value) > KEY_LENGTH_MAX:
            raise MalformedRequest(
                f"{name} in BrokerProperties has more than {KEY_LENGTH_MAX} characters."
            )
        texts[name] = value
    session_id = texts.get("SessionId")
    partition_key = texts.get("PartitionKey")
    if session_id and partition_key is not None and session_id != partition_key:
        raise MalformedRequest(
            "SessionId and PartitionKey are both set and differ; they must be equal."
        )
    persistence = document.get("ForcePersistence")
    if persistence is not None and not isinstance(persistence, bool):
        # Checked and then of no consequence: whatever is accepted is stored.
        raise MalformedRequest("ForcePersistence in BrokerProperties must be true or false.")
    return BrokerProperties(texts, _life_in(document), _schedule_in(document))


def _life_in(document: dict[str, Any]) -> int:
    seconds = document.get("TimeToLive")
    span = document.get("TimeToLiveTimeSpan")
    if seconds is not None:
        if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
            raise MalformedRequest("TimeToLive in BrokerProperties must be a number of seconds.")
        # A whole number may be too large to be asked whether it is finite.
        if seconds <= 0 or (isinstance(seconds, float) and not math.isfinite(seconds)):
            raise MalformedRequest("TimeToLive in BrokerProperties must be more than nothing.")
        return max(1, min(int(min(seconds, LIFE_MAX_MS) * 1000), LIFE_MAX_MS))
    if span is None:
        return NO_DURATION
    life_ms = read_timespan(span) if isinstance(span, str) else None
    if not life_ms:
        raise MalformedRequest(
            "TimeToLiveTimeSpan in BrokerProperties must be a duration such as '00:00:30'."
        )
    return min(life_ms, LIFE_MAX_MS)


def _schedule_in(document: dict[str, Any]) -> int:
    text = document.get("ScheduledEnqueueTimeUtc")
    if text is None:
        return NEVER
    instant = read_instant(text) if isinstance(text, str) else None
    if instant is None:
        raise MalformedRequest(
            "ScheduledEnqueueTimeUtc in BrokerProperties must be an instant such as "
            "'Sun, 06 Nov 1994 08:49:37 GMT'."
        )
    return max(NEVER, instant)
