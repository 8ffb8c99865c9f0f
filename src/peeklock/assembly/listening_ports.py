"""The ports that were asked for: bound by this process, or by the parent of several nodes."""

import errno
import socket
from collections.abc import Mapping, Sequence

from peeklock.gateway.listening.listener import Listener, bind
from peeklock.settings import Settings


async def bind_ports(settings: Settings) -> dict[str, list[socket.socket]]:
    """Bind every port that was asked for; by its name, the sockets."""
    wanted = {
        "AMQP": settings.amqp_port,
        "HTTP": settings.http_port,
        "AMQPS": settings.amqps_port,
        "HTTPS": settings.https_port,
    }
    bound: dict[str, list[socket.socket]] = {}
    for name, port in wanted.items():
        if port is None:
            continue
        try:
            bound[name] = await bind(settings.host, port)
        except OSError as error:
            for sockets in bound.values():
                for each in sockets:
                    each.close()
            if error.errno != errno.EADDRINUSE:
                raise
            text = (
                f"{error.strerror}; --{name.lower()}-port PORT or PEEKLOCK_{name}_PORT=PORT "
                "chooses another port, 0 a free one"
            )
            raise OSError(error.errno, text) from error
    return bound


def inherited_ports(listening: Mapping[str, Sequence[int]]) -> dict[str, list[socket.socket]]:
    """Take sockets that the parent process has bound, by their descriptors."""
    return {
        name: [socket.socket(fileno=each) for each in descriptors]
        for name, descriptors in listening.items()
    }


def listen(listener: Listener, bound: Mapping[str, Sequence[socket.socket]]) -> dict[str, int]:
    """Accept on all of them; answers the ports."""
    return {name: listener.adopt(name.lower(), sockets) for name, sockets in bound.items()}


def ports_of(bound: Mapping[str, Sequence[socket.socket]]) -> dict[str, int]:
    """Tell which ports they are."""
    return {name: sockets[0].getsockname()[1] for name, sockets in bound.items()}
