"""The stores, seen and switched from outside: who manages the namespace may take one away."""

from collections.abc import Sequence
from typing import Any, Final, Protocol, final

from peeklock.auth.rights import MANAGE
from peeklock.gateway.http.answer import Answer, not_allowed, not_found, refused
from peeklock.gateway.http.request import HttpRequest
from peeklock.gateway.http.token_guard import TokenGuard
from peeklock.store.store import StoreError
from peeklock.store.stores import StoreState, UnknownStore

NODE: Final = "$stores"

_ONLINE: Final = "online"
_OFFLINE: Final = "offline"


class StoresView(Protocol):
    """What this node needs of the stores."""

    async def all_states(self) -> Sequence[StoreState]:
        """Tell how each store is, on whichever node it is."""
        ...

    async def offline(self, name: str) -> None:
        """Let a store go."""
        ...

    async def online(self, name: str, may_make: bool = False) -> None:
        """Bring a store back; it may be made where it is missing only when that was asked for."""
        ...


@final
class StoresNode:
    """Answers `GET /$stores` and `POST /$stores/NAME/offline|online[?make=true]`."""

    def __init__(self, stores: StoresView, guard: TokenGuard) -> None:
        self._stores = stores
        self._guard = guard

    async def answer(self, request: HttpRequest) -> Answer:
        """Answer a request below `/$stores`."""
        # Before anything else: who may not see the stores learns nothing about them.
        refusal = self._guard.check(request, "", MANAGE)
        if refusal is not None:
            return refusal
        place = request.segments()[1:]
        if not place:
            return await self._list(request.method)
        if len(place) != 2 or place[1] not in (_ONLINE, _OFFLINE):
            return not_found(request.path)
        if request.method != "POST":
            return not_allowed(request.method, ["POST"])
        return await self._switch(place[0], place[1], request.flag("make"))

    async def _list(self, method: str) -> Answer:
        if method not in ("GET", "HEAD"):
            return not_allowed(method, ["GET", "HEAD"])
        return Answer(200, {"stores": [_told(each) for each in await self._stores.all_states()]})

    async def _switch(self, name: str, to: str, may_make: bool) -> Answer:
        try:
            if to == _ONLINE:
                await self._stores.online(name, may_make)
            else:
                await self._stores.offline(name)
        except UnknownStore as error:
            return refused(404, f"{error}")
        except (StoreError, OSError) as error:
            return refused(409, f"{error}")
        states = await self._stores.all_states()
        return Answer(200, {"stores": [_told(each) for each in states if each.name == name]})


def _told(state: StoreState) -> dict[str, Any]:
    word = _ONLINE if state.is_online else _OFFLINE
    return {"name": state.name, "state": word, "text": state.text}
