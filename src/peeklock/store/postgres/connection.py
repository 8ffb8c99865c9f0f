"""One session with a database: made when it is needed, made anew when it was lost.

Whatever goes wrong is told in this room's words. An error of a statement means that nothing of it
is stored; a session that ends in the middle leaves it in doubt.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, final
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit, urlunsplit

import asyncpg

from peeklock.store.store import Away, Broken, StoreError, Unavailable

# How long a database may take to let us in, unless its address says so, and to answer. Commits wait
# for its standbys, too; one that has not answered by then is in doubt.
CONNECT_S: Final = 10.0
ANSWER_S: Final = 30.0

# Sent with the first message of each session. A session whose client is gone must not stay.
_SETTINGS: Final = {
    "application_name": "peeklock",
    "synchronous_commit": "on",
    "default_transaction_isolation": "read committed",
    "idle_in_transaction_session_timeout": "10s",
    "statement_timeout": "0",
    "lock_timeout": "10s",
    "jit": "off",
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
}

# Which history of which database it is: promoting a standby, or restoring a copy to an earlier
# moment, begins another timeline.
_IDENTITY: Final = """
select pg_is_in_recovery() as is_standby,
    (select system_identifier from pg_control_system()) as system_id,
    case when pg_is_in_recovery() then 0
        else ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::bigint
    end as timeline
"""

# The place of the only broker ends with its session.
_TAKE_PLACE: Final = "select pg_try_advisory_lock(1885693291, 1)"
PATIENCE_S: Final = 5.0

# What the server calls the place where a commit waits for a standby.
_STANDBY_WAIT: Final = "SyncRepWaitForLSN"

_LOG: Final = logging.getLogger("peeklock.store")


class DiskFull(Away):
    """The database has no room: nothing of what was asked is stored."""


@final
@dataclass(frozen=True, slots=True)
class Identity:
    """Which database it is, and which of its histories."""

    system_id: int
    timeline: int


def shown(url: str) -> str:
    """Name a database without saying who uses it and by which password."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2] or ",".join(parse_qs(parts.query).get("host", ["local"]))
    return f"{host}{parts.path}"


@final
class DatabaseSession:
    """One connection, used by one at a time; who comes meanwhile waits."""

    def __init__(
        self,
        url: str,
        expected: Identity | None = None,
        *,
        alone_within_s: float | None = None,
        answer_s: float = ANSWER_S,
    ) -> None:
        """With `expected`, a database of another history is not the one that is meant; with
        `alone_within_s`, nobody else who says so may have a session with it after that time."""
        # Which it is, once there was a connection.
        self.identity = expected
        self._url = url
        self._expected = expected
        self._alone_within_s = alone_within_s
        self._answer_s = answer_s
        self._connection: Any = None
        self._turn = asyncio.Lock()
        self._was_cut_short = False

    async def fetch(self, statement: str, *arguments: Any) -> list[Any]:
        """Carry out one statement, durably if it writes."""
        async with self._turn:
            connection = await self._connected()
            self._was_cut_short = False
            rows: list[Any] = await self._answered(
                connection, connection.fetch, statement, arguments
            )
            if self._was_cut_short:
                self._lose(connection)
                text = "somebody ended the wait for the synchronous standby"
                raise Unavailable(f"what {shown(self._url)} stored is not on its standby: {text}")
            return rows

    async def run(self, script: str) -> None:
        """Carry out several statements that are sent as one text."""
        async with self._turn:
            connection = await self._connected()
            await self._answered(connection, connection.execute, script, ())

    async def close(self) -> None:
        """End the session once it is at rest."""
        async with self._turn:
            connection, self._connection = self._connection, None
            if connection is not None:
                try:
                    await connection.close(timeout=1)
                except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, TimeoutError):
                    connection.terminate()

    async def _connected(self) -> Any:
        connection = self._connection
        if connection is None or connection.is_closed():
            connection = self._connection = None
            try:
                connection = await _connect(self._url)
                await self._greet(connection)
            except BaseException:
                if connection is not None:
                    connection.terminate()
                raise
            self._connection = connection
        return connection

    async def _greet(self, connection: Any) -> None:
        connection.add_log_listener(self._told)
        self.identity = await _identify(connection, self._url)
        if self._expected is not None and self.identity != self._expected:
            raise Broken(f"{shown(self._url)} has another history than before: {self.identity}")
        if self._alone_within_s is not None:
            await _be_alone(connection, self._url, self._alone_within_s)

    def _told(self, _connection: Any, message: Any) -> None:
        # The commit stands here and may be nowhere else; the answer would not tell.
        if getattr(message, "server_source_function", None) == _STANDBY_WAIT:
            self._was_cut_short = True
        elif getattr(message, "severity_en", None) == "WARNING":
            _LOG.warning("store-told store=%s text=%r", shown(self._url), str(message))

    async def _answered(
        self, connection: Any, call: Callable[..., Any], statement: str, arguments: tuple[Any, ...]
    ) -> Any:
        """Wait for an answer. Who does not get one in time hangs up: asking the server to give up
        would end its wait for a standby, and call that a success."""
        timer = asyncio.get_running_loop().call_later(self._answer_s, connection.terminate)
        try:
            return await call(statement, *arguments)
        except asyncio.CancelledError as error:
            self._lose(connection)
            task = asyncio.current_task()
            if task is not None and task.cancelling() == 0:
                # Nobody has cancelled us: the library does that to whoever waits on a lost session.
                raise Unavailable(f"{shown(self._url)} was lost meanwhile") from error
            raise
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
            failure = _translated(error, shown(self._url))
            if not isinstance(failure, Away) or isinstance(
                error, asyncpg.ReadOnlySQLTransactionError
            ):
                self._lose(connection)
            raise failure from error
        finally:
            timer.cancel()

    def _lose(self, connection: Any) -> None:
        self._connection = None
        connection.terminate()


def _split(url: str) -> tuple[str, float]:
    """Take the time to connect out of an address: libpq knows it there, asyncpg does not."""
    parts = urlsplit(url)
    connect_s = CONNECT_S
    rest: list[tuple[str, str]] = []
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name != "connect_timeout":
            rest.append((name, value))
        elif value.isdecimal() and int(value):
            connect_s = float(value)
        else:
            raise Broken(f"{shown(url)}: connect_timeout is a number of seconds, not {value!r}")
    return urlunsplit(parts._replace(query=urlencode(rest, safe="/:,"))), connect_s


async def _be_alone(connection: Any, url: str, within_s: float) -> None:
    """Take the place of the only broker; one that was killed a moment ago may still have it."""
    until = asyncio.get_running_loop().time() + within_s
    try:
        while not await connection.fetchval(_TAKE_PLACE, timeout=ANSWER_S):
            if asyncio.get_running_loop().time() >= until:
                raise Unavailable(f"{shown(url)} is in use by another broker")
            await asyncio.sleep(0.1)
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
        raise Broken(f"{shown(url)} does not say whether it is in use: {error}") from error


async def _connect(url: str) -> Any:
    address, connect_s = _split(url)
    try:
        return await asyncpg.connect(
            address,
            timeout=connect_s,
            server_settings=_SETTINGS,
            statement_cache_size=100,
            max_cached_statement_lifetime=0,
        )
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, ValueError) as error:
        # One that takes too long has no words of its own.
        text = str(error) or f"it did not answer for {connect_s:g} s"
        raise Broken(f"{shown(url)} cannot be reached: {text}") from error


async def _identify(connection: Any, url: str) -> Identity:
    """Ask which database this is; one that cannot be written to is none for us."""
    try:
        row = await connection.fetchrow(_IDENTITY, timeout=ANSWER_S)
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
        raise Broken(f"{shown(url)} does not say which it is: {error}") from error
    if row["is_standby"]:
        raise Broken(f"{shown(url)} is a standby: it cannot be written to")
    return Identity(row["system_id"], row["timeline"])


def _translated(error: Exception, name: str) -> StoreError:
    if isinstance(error, asyncpg.DiskFullError):
        return DiskFull(f"{name} has no room left: {error}")
    severity = getattr(error, "severity_en", None)
    if isinstance(error, asyncpg.PostgresError) and severity == "ERROR":
        return Away(f"{name} refused, and stored nothing: {error}")
    return Unavailable(f"{name} was lost meanwhile: {str(error) or type(error).__name__}")
