"""Tokens on `$cbs`: one for each entity, shown before its first link, renewed before it expires."""

import asyncio
import logging
import uuid
from typing import Final, final

from peeklock.client.connections.config import ClientConfig
from peeklock.client.connections.request_channel import RequestChannel
from peeklock.client.connections.sharing import shared
from peeklock.client.connections.transport import Transport
from peeklock.client.credentials import Token
from peeklock.client.exceptions import from_token_status
from peeklock.clock import Clock

_LOG: Final = logging.getLogger("peeklock.client")

# Renewed when this part of its life is over, as the official clients do.
_RENEWED_AFTER: Final = 0.9
# A renewal that failed is tried again so often before the token expires.
_RENEWALS: Final = 4
_RENEWAL_S_MIN: Final = 0.05


@final
class Tokens:
    """What was shown on one connection; it all goes with the connection."""

    def __init__(
        self, transport: Transport, config: ClientConfig, clock: Clock, within_s: float
    ) -> None:
        self._transport: Final = transport
        self._config: Final = config
        self._clock: Final = clock
        self._within_s: Final = within_s
        self._request_channel: RequestChannel | None = None
        # By audience: the task that shows the token, or showed it.
        self._shown: dict[str, asyncio.Task[None]] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._renewing: set[asyncio.Task[None]] = set()

    async def show(self, entity: str) -> None:
        """Show a token for an entity unless that was done; many who ask at once show one."""
        audience = self._audience(entity)
        shown = self._shown.get(audience)
        if shown is None:
            shown = asyncio.create_task(self._put(audience))
            self._shown[audience] = shown
            shown.add_done_callback(lambda shown: self._look_at(audience, shown))
        await shared(shown)

    async def close(self) -> None:
        """Renew nothing any more."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        tasks = [*self._renewing, *self._shown.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _audience(self, entity: str) -> str:
        # The token for an entity is good for its dead letters and its management node too.
        path = entity.strip("/").partition("/$")[0]
        return f"sb://{self._config.host}/{path}"

    def _look_at(self, audience: str, shown: asyncio.Task[None]) -> None:
        """Forget what failed, so that whoever asks next tries again."""
        has_failed = shown.cancelled() or shown.exception() is not None
        if has_failed and self._shown.get(audience) is shown:
            del self._shown[audience]

    async def _put(self, audience: str) -> None:
        token = await self._config.credential.token(audience, self._clock.now())
        request_channel = await self._open_channel()
        answer = await request_channel.ask(
            {"operation": "put-token", "type": token.type, "name": audience},
            token.text,
            self._within_s,
        )
        properties = answer.application_properties or {}
        status = properties.get("status-code")
        if not isinstance(status, int) or not 200 <= status < 300:
            text = str(properties.get("status-description") or f"status {status}")
            raise from_token_status(status if isinstance(status, int) else 500, text)
        self._renew_in_time(audience, token)

    async def _open_channel(self) -> RequestChannel:
        if self._request_channel is None or self._request_channel.is_gone:
            session = self._transport.begin_session()
            self._request_channel = RequestChannel(
                self._transport, "$cbs", f"cbs-{uuid.uuid4().hex}", session
            )
        request_channel = self._request_channel
        await request_channel.wait_open(self._within_s)
        return request_channel

    # --- renewal

    def _renew_in_time(self, audience: str, token: Token) -> None:
        life_s = (token.expires_at - self._clock.now()) / 1000
        if life_s > 0 and token.is_renewable:
            self._renew_after(audience, life_s * _RENEWED_AFTER, token.expires_at)

    def _renew_after(self, audience: str, wait_s: float, expires_at: int) -> None:
        previous = self._timers.pop(audience, None)
        if previous is not None:
            previous.cancel()
        self._timers[audience] = self._transport.loop.call_later(
            max(_RENEWAL_S_MIN, wait_s), self._start_renewal, audience, expires_at
        )

    def _start_renewal(self, audience: str, expires_at: int) -> None:
        del self._timers[audience]
        if not self._transport.is_alive:
            return
        task = asyncio.create_task(self._renew(audience, expires_at))
        self._renewing.add(task)
        task.add_done_callback(self._renewing.discard)

    async def _renew(self, audience: str, expires_at: int) -> None:
        try:
            await self._put(audience)
        except Exception as error:  # noqa: BLE001  a credential of others may raise anything
            left_s = (expires_at - self._clock.now()) / 1000
            _LOG.warning("the token for %s could not be renewed: %s", audience, error)
            if left_s > _RENEWAL_S_MIN and self._transport.is_alive:
                self._renew_after(audience, left_s / _RENEWALS, expires_at)
            else:
                # The broker ends the links; whoever opens them again shows another token.
                self._shown.pop(audience, None)
