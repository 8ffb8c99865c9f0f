"""The parent of several nodes on one machine.

It binds the ports, keeps the catalog, starts the nodes and starts again those that end. It serves
no client itself: nodes accept on its sockets, so that one that is stopped swallows no connection.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import signal
import socket
import sys
import tempfile
from typing import Final, final

from peeklock.assembly.listening_ports import bind_ports, ports_of
from peeklock.assembly.open_stores import open_catalog
from peeklock.clock import SystemClock
from peeklock.cluster.channel import serve as serve_channels
from peeklock.cluster.coordinator import ClusterCoordinator
from peeklock.configuration.content import Configuration
from peeklock.configuration.start import configuration_for
from peeklock.gateway import logbook
from peeklock.hangup import is_terminal_there
from peeklock.node_description import NodeDescription
from peeklock.ready_text import say_ready
from peeklock.server import server_tls
from peeklock.settings import Settings
from peeklock.store.store import Catalog, Corrupt
from peeklock.store.stores import STORE_KIND

# How long a node that ended is left in peace; more each time that it ends soon after.
_RESTART_S_MIN: Final = 0.05
_RESTART_S_MAX: Final = 5.0
# Who has served for so long did not end because of how it began.
_STEADY_S: Final = 10.0
# How long a node may take to finish what it was asked.
_STOP_S_MAX: Final = 30.0
# How long a node is tried that cannot begin: the nodes of a parent that was killed may still be
# about to let their stores go.
_BEGIN_S_MAX: Final = 3.0

_LOG: Final = logging.getLogger("peeklock.supervisor")


class NodeFailed(OSError):
    """A node ended before it ever served."""


def supervise(settings: Settings) -> None:
    """Serve with several nodes until SIGTERM or SIGINT."""
    configuration = configuration_for(settings)
    logging.basicConfig(
        level=settings.log_level.upper(),
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
        stream=sys.stderr,
    )
    asyncio.run(_supervise(settings, configuration))


async def _supervise(settings: Settings, configuration: Configuration) -> None:
    # Made before the nodes start, which would all make one.
    server_tls(settings, configuration, SystemClock())
    catalog = await open_catalog(settings)
    directory = tempfile.mkdtemp(prefix="peeklock-")  # for this user alone
    try:
        stores = await _count_stores(settings, catalog)
        bound = await bind_ports(settings)
        supervisor = Supervisor(settings, configuration, catalog, directory, stores, bound)
        await supervisor.run()
    finally:
        await catalog.close()
        shutil.rmtree(directory, ignore_errors=True)


async def _count_stores(settings: Settings, catalog: Catalog) -> int:
    """Tell how many stores there are to be: each node needs one."""
    made = sum(kind == STORE_KIND for _, kind, _, _ in await catalog.load())
    if made == 0:
        return max(settings.stores, settings.nodes)
    count = max(settings.stores, made)
    if count < settings.nodes:
        raise Corrupt(
            f"{settings.data} has {made} store{'s' if made > 1 else ''} and {settings.nodes} nodes "
            f"need one each. Start with --stores {settings.nodes} to add some, which entities that "
            "are made from then on use, or with fewer nodes"
        )
    return count


@final
class Supervisor:
    """Starts the nodes, and looks after them."""

    def __init__(
        self,
        settings: Settings,
        configuration: Configuration,
        catalog: Catalog,
        directory: str,
        stores: int,
        bound: dict[str, list[socket.socket]],
    ) -> None:
        self._settings = settings
        self._configuration = configuration
        self._directory = directory
        self._stores = stores
        self._bound = bound
        self._ports = ports_of(bound)
        self._coordinator = ClusterCoordinator(catalog)
        self._coordinator.on_serving = self._serving
        self._coordinator.on_lost = self._lost
        self._processes: dict[int, asyncio.subprocess.Process] = {}
        self._served: set[int] = set()
        self._is_ready = False
        self._stop = asyncio.Event()
        self._failure: NodeFailed | None = None
        # Asked early, because a terminal that has gone cannot be asked for.
        self._has_terminal = is_terminal_there()

    async def run(self) -> None:
        """Serve until a signal comes, or until a node cannot even begin."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            loop.add_signal_handler(signal.SIGHUP, self._hangup)
        server = await serve_channels(self._describe(0).coordination_path, self._coordinator.side)
        tasks = [loop.create_task(self._look_after(each)) for each in range(self._settings.nodes)]
        try:
            await self._stop.wait()
            _LOG.info("%s", logbook.line("stopping", nodes=len(self._processes)))
        finally:
            # Each node closes its own copy when it stops.
            for sockets in self._bound.values():
                for each in sockets:
                    each.close()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._end_all()
            server.close()
        if self._failure is not None:
            raise self._failure
        _LOG.info("stopped")

    # ---- nodes

    def _describe(self, index: int) -> NodeDescription:
        return NodeDescription(
            index=index,
            count=self._settings.nodes,
            directory=self._directory,
            stores=self._stores,
            listening={
                name: [each.fileno() for each in sockets] for name, sockets in self._bound.items()
            },
        )

    async def _look_after(self, index: int) -> None:
        """Start a node, and start it again whenever it ends."""
        loop = asyncio.get_running_loop()
        pause_s = _RESTART_S_MIN
        first_at = loop.time()
        while True:
            started_at = loop.time()
            process = await self._start(index)
            code = await process.wait()
            self._processes.pop(index, None)
            _LOG.error("%s", logbook.line("node-ended", node=index, code=code))
            is_late = loop.time() - first_at > _BEGIN_S_MAX
            if index not in self._served and not self._is_ready and is_late:
                self._failure = NodeFailed(f"node {index} ended with {code} before it served")
                self._stop.set()
                return
            pause_s = (
                _RESTART_S_MIN
                if loop.time() - started_at > _STEADY_S
                else min(2 * pause_s, _RESTART_S_MAX)
            )
            await asyncio.sleep(pause_s)

    async def _start(self, index: int) -> asyncio.subprocess.Process:
        description = self._describe(index)
        descriptors = [each for found in description.listening.values() for each in found]
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "peeklock"),
            *sys.argv[1:],
            env=description.environment(),
            pass_fds=descriptors,
            stdin=asyncio.subprocess.DEVNULL,
        )
        self._processes[index] = process
        _LOG.info("%s", logbook.line("node-started", node=index, pid=process.pid))
        return process

    def _serving(self, index: int) -> None:
        """A node serves; when all do, that is said once."""
        _LOG.info("%s", logbook.line("node-serves", node=index))
        self._served.add(index)
        if not self._is_ready and len(self._served) == self._settings.nodes:
            self._is_ready = True
            say_ready(self._settings, self._configuration, self._ports)

    def _lost(self, index: int) -> None:
        """A node has ended, or says nothing any more: it must not go on with its stores."""
        process = self._processes.get(index)
        if process is not None and process.returncode is None and not self._stop.is_set():
            _LOG.error("%s", logbook.line("node-killed", node=index, pid=process.pid))
            process.kill()

    def _hangup(self) -> None:
        """Hand SIGHUP to a node that serves, which reloads for all; where there was a terminal, it
        has gone, and everything stops politely."""
        if self._has_terminal:
            self._stop.set()
            return
        for index, process in self._processes.items():
            if index in self._served and process.returncode is None:
                process.send_signal(signal.SIGHUP)
                return

    async def _end_all(self) -> None:
        processes = [each for each in self._processes.values() if each.returncode is None]
        for process in processes:
            process.terminate()
        ending = [asyncio.ensure_future(process.wait()) for process in processes]
        if ending:
            _, late = await asyncio.wait(ending, timeout=_STOP_S_MAX)
            for process in processes:
                if late and process.returncode is None:
                    process.kill()
            if late:
                await asyncio.wait(late)
