"""The controls over HTTP, for tests in any language: `/$testing` of a broker that is under test.

It asks for no token: such a broker listens on loopback, or shows a key that everybody knows; and
pages of other origins are refused before they come here.
"""

import json
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeAlias, final
from uuid import UUID

from peeklock.durations import parse_duration
from peeklock.gateway.http.answer import Answer, bad_request, not_allowed, not_found
from peeklock.gateway.http.request import HttpRequest
from peeklock.testbed.controls import Controls
from peeklock.testbed.faults import LOSE_LOCK, Fault, FaultError
from peeklock.testbed.made_namespaces import MadeNamespace, NamespaceError

NODE: Final = "$testing"

_Asked: TypeAlias = dict[str, Any]
_Handler: TypeAlias = Callable[[list[str], _Asked], Coroutine[Any, Any, Answer]]
# What each word of a fault is in JSON.
_FAULT_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "kind": (str,),
    "entity": (str, type(None)),
    "operation": (str,),
    "count": (int, type(None)),
    "after": (int,),
    "probability": (int, float),
    "seed": (int, type(None)),
    "delay": (int, float, str),
    "condition": (str,),
    "is_stored": (bool,),
    "namespace": (str,),
    "lock_token": (str,),
}


class _Wrong(Exception):
    """Something is wrong with what was asked; the text says what."""


@final
class ControlsNode:
    """Answers what is asked below `/$testing`."""

    def __init__(self, controls: Controls, first_namespace: str) -> None:
        """The first namespace is meant where none is named."""
        self._controls: Final = controls
        self._first: Final = first_namespace
        self._handlers: Final[dict[str, dict[str, _Handler]]] = {
            "": {"GET": self._tell},
            "clock": {"GET": self._tell_clock, "POST": self._advance},
            "namespaces": {
                "GET": self._list_namespaces,
                "POST": self._make_namespace,
                "PUT": self._configure_namespace,
                "DELETE": self._drop_namespace,
            },
            "faults": {
                "GET": self._list_faults,
                "POST": self._add_fault,
                "DELETE": self._remove_faults,
            },
        }

    async def answer(self, request: HttpRequest) -> Answer:
        """Answer a request below `/$testing`."""
        place = [segment for segment in request.segments()[1:] if segment]
        handlers = self._handlers.get(place[0] if place else "")
        if handlers is None or len(place) > 2:
            return not_found(request.path)
        handler = handlers.get(request.method)
        if handler is None:
            return not_allowed(request.method, list(handlers))
        try:
            return await handler(place[1:], _document(request))
        except (_Wrong, FaultError, NamespaceError, ValueError) as error:
            return bad_request(str(error))

    async def _tell(self, place: list[str], asked: _Asked) -> Answer:
        document = {
            **(await self._tell_clock(place, asked)).document,
            **(await self._list_namespaces(place, asked)).document,
            **(await self._list_faults(place, asked)).document,
        }
        return Answer(200, document)

    # --- the clock

    async def _tell_clock(self, _place: list[str], _asked: _Asked) -> Answer:
        clock = self._controls.clock
        return Answer(200, {"now_ms": clock.now(), "moved_ms": clock.moved_ms})

    async def _advance(self, place: list[str], asked: _Asked) -> Answer:
        _only(asked, "advance", "tokens", "connections")
        flags = {word: value for word, value in asked.items() if word != "advance"}
        for word, value in flags.items():
            if not isinstance(value, bool):
                raise _Wrong(f"{word} must be true or false.")
        await self._controls.advance(_duration_ms("advance", asked.get("advance")), **flags)
        return await self._tell_clock(place, {})

    # --- namespaces

    async def _list_namespaces(self, _place: list[str], _asked: _Asked) -> Answer:
        made = self._controls.namespaces.all()
        return Answer(200, {"namespaces": [self._told(each) for each in made]})

    async def _make_namespace(self, place: list[str], asked: _Asked) -> Answer:
        made = await self._controls.namespaces.make(place[0] if place else "", asked)
        return Answer(201, self._told(made))

    async def _configure_namespace(self, place: list[str], asked: _Asked) -> Answer:
        if not place:
            raise _Wrong("PUT needs the name of a namespace: /$testing/namespaces/NAME.")
        await self._controls.namespaces.configure(place[0], asked)
        return Answer(200, self._told(self._controls.namespaces.get(place[0])))

    async def _drop_namespace(self, place: list[str], _asked: _Asked) -> Answer:
        if not place:
            raise _Wrong("DELETE needs the name of a namespace: /$testing/namespaces/NAME.")
        await self._controls.drop(place[0])
        return Answer(200, {})

    def _told(self, made: MadeNamespace) -> dict[str, Any]:
        place = self._controls.place
        return {"name": made.name, "connection_string": made.connection_string(place)}

    # --- faults

    async def _list_faults(self, _place: list[str], _asked: _Asked) -> Answer:
        return Answer(200, {"faults": [_told_fault(each) for each in self._controls.faults.all()]})

    async def _add_fault(self, _place: list[str], asked: _Asked) -> Answer:
        for word, value in asked.items():
            types = _FAULT_TYPES.get(word)
            is_flag = types is not None and bool in types
            if types is None:
                raise _Wrong(f"A fault has no '{word}'; it has {', '.join(_FAULT_TYPES)}.")
            if not isinstance(value, types) or (isinstance(value, bool) and not is_flag):
                raise _Wrong(f"{word} cannot be {json.dumps(value)}.")
        words = dict(asked)
        namespace = self._namespace(words.pop("namespace", ""))
        token = words.pop("lock_token", None)
        if token is not None:
            return await self._lose_lock(namespace, words, token)
        if "delay" in words:
            words["delay_ms"] = _duration_ms("delay", words.pop("delay"))
        if "kind" not in words:
            raise _Wrong("A fault needs its kind.")
        fault = await self._controls.add_fault(namespace, Fault(**words))
        return Answer(201, _told_fault(fault))

    async def _lose_lock(self, namespace: str, words: _Asked, token: str) -> Answer:
        if words.keys() != {"kind", "entity"} or words["kind"] != LOSE_LOCK or not words["entity"]:
            raise _Wrong(f"A lock that ends now takes kind {LOSE_LOCK}, entity and lock_token.")
        await self._controls.lose_lock(namespace, words["entity"], UUID(token))
        return Answer(200, {})

    async def _remove_faults(self, place: list[str], _asked: _Asked) -> Answer:
        faults = self._controls.faults
        if place and not place[0].isdigit():
            raise _Wrong(f"'{place[0]}' is no number of a fault.")
        numbers = [int(place[0])] if place else [each.number for each in faults.all()]
        removed = [number for number in numbers if faults.remove(number)]
        return Answer(200, {"removed": removed})

    def _namespace(self, name: str) -> str:
        if not name or name.lower() == self._first.lower():
            return self._first
        return self._controls.namespaces.get(name).name


def _document(request: HttpRequest) -> _Asked:
    if not request.body:
        return {}
    try:
        document = json.loads(request.body)
    except (ValueError, RecursionError) as error:
        raise _Wrong(f"The body is not JSON: {error}.") from error
    if not isinstance(document, dict):
        raise _Wrong("The body must be a JSON object.")
    return document


def _only(asked: _Asked, *words: str) -> None:
    others = sorted(asked.keys() - set(words))
    if others:
        raise _Wrong(f"'{others[0]}' means nothing here; {' and '.join(words)} do.")


def _duration_ms(word: str, value: Any) -> int:
    """Read seconds, or a duration as ISO 8601 has it."""
    if isinstance(value, str):
        return parse_duration(value)
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0:
        return round(value * 1000)
    raise _Wrong(f"{word} must be seconds, or a duration such as PT1M.")


def _told_fault(fault: Fault) -> dict[str, Any]:
    return {
        "number": fault.number,
        "namespace": fault.namespace,
        "kind": fault.kind,
        "entity": fault.entity,
        "operation": fault.operation,
        "count": fault.count,
        "struck": fault.struck,
    }
