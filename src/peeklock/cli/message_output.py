"""Messages as commands tell them."""

import base64
import json
from typing import Any, Final

from peeklock.amqp.messages.message import DATA_BODY, AmqpMessage, decode_message
from peeklock.amqp.messages.message_forms import Properties
from peeklock.amqp.values.types import Timestamp

_STATES: Final = ("active", "deferred", "scheduled", "claimed")
_PREVIEW: Final = 120


def describe_message(payload: bytes) -> dict[str, Any]:
    """Tell everything about a message, as JSON can."""
    message = decode_message(payload)
    annotations = {str(key): value for key, value in (message.message_annotations or {}).items()}
    is_claimed = annotations.get("com.peeklock:claimed", False)
    state = 3 if is_claimed else annotations.get("x-opt-message-state", 0)
    told: dict[str, Any] = {
        "SequenceNumber": annotations.get("x-opt-sequence-number"),
        "EnqueuedTime": _instant(annotations.get("x-opt-enqueued-time")),
        "State": _STATES[state] if state in (0, 1, 2, 3) else str(state),
        "DeliveryCount": 0 if message.header is None else message.header.delivery_count or 0,
        **_own(message.properties),
        "ScheduledEnqueueTime": _instant(annotations.get("x-opt-scheduled-enqueue-time")),
        "LockedUntil": _instant(annotations.get("x-opt-locked-until")),
        "DeadLetterSource": annotations.get("x-opt-deadletter-source"),
    }
    told = {key: value for key, value in told.items() if value is not None}
    if message.header is not None and message.header.ttl is not None:
        told["TimeToLiveMs"] = int(message.header.ttl)
    properties = message.application_properties or {}
    told["ApplicationProperties"] = {str(key): plain(value) for key, value in properties.items()}
    return told | _body(message)


def preview(told: dict[str, Any]) -> str:
    """Return the beginning of a body, in one line."""
    body = told.get("Body")
    if "BodyBase64" in told:
        return f"({told['BodyBytes']} bytes)"
    text = body if isinstance(body, str) else json.dumps(body, ensure_ascii=False)
    line = text.replace("\n", "⏎").replace("\r", "")
    return line if len(line) <= _PREVIEW else f"{line[:_PREVIEW]}…"


def plain(value: Any) -> Any:
    """Return a value as JSON has it; the types that it does not have are written as text."""
    if isinstance(value, Timestamp):
        return _instant(value)
    if value is None or isinstance(value, (bool, str, float)):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list) else str(value)


def _own(properties: Properties | None) -> dict[str, Any]:
    """Return what the message says about itself."""
    if properties is None:
        return {}
    return {
        "MessageId": _id(properties.message_id),
        "SessionId": properties.group_id,
        "Subject": properties.subject,
        "CorrelationId": _id(properties.correlation_id),
        "To": properties.to,
        "ReplyTo": properties.reply_to,
        "ReplyToSessionId": properties.reply_to_group_id,
        "ContentType": None if properties.content_type is None else str(properties.content_type),
    }


def _body(message: AmqpMessage) -> dict[str, Any]:
    if message.body_kind != DATA_BODY:
        return {"Body": plain(message.body)}
    content = b"".join(message.body)
    try:
        return {"Body": content.decode()}
    except UnicodeDecodeError:
        encoded = base64.b64encode(content).decode("ascii")
        return {"BodyBase64": encoded, "BodyBytes": len(content)}


def _id(value: Any) -> str | None:
    if value is None:
        return None
    return value.hex() if isinstance(value, bytes) else str(value)


def _instant(value: Any) -> str | None:
    from datetime import UTC, datetime, timedelta

    if value is None:
        return None
    try:
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=int(value))
    except OverflowError:
        return str(int(value))
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
