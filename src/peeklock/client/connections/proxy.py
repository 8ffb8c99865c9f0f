"""The way through an HTTP proxy: a socket to it, and the request to be connected on."""

import asyncio
import base64
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, final

_KEYS: Final = frozenset(("proxy_hostname", "proxy_port", "username", "password"))
# More than any proxy says before it connects.
_ANSWER_SIZE_MAX: Final = 64 * 1024
_END: Final = b"\r\n\r\n"


@final
@dataclass(frozen=True, slots=True)
class HttpProxy:
    """A proxy, and who asks it."""

    host: str
    port: int
    username: str = ""
    password: str = ""

    def __repr__(self) -> str:
        # Written out so that no password reaches a log or a traceback.
        return f"HttpProxy({self.host!r}, {self.port})"

    @staticmethod
    def read(given: Mapping[str, Any]) -> "HttpProxy":
        """Take a proxy in the form of azure-servicebus; ValueError says what is wrong with it."""
        unknown = given.keys() - _KEYS
        if unknown:
            raise ValueError(f"http_proxy has no '{min(unknown)}'")
        host, port = given.get("proxy_hostname"), given.get("proxy_port")
        if not isinstance(host, str) or not host:
            raise ValueError("http_proxy needs a proxy_hostname")
        if not isinstance(port, int) or isinstance(port, bool) or not 0 < port < 65536:
            raise ValueError("http_proxy needs a proxy_port, from 1 to 65535")
        return HttpProxy(
            host, port, str(given.get("username") or ""), str(given.get("password") or "")
        )


async def tunnel(proxy: HttpProxy, host: str, port: int) -> socket.socket:
    """Connect to a host by way of a proxy; OSError says where it ended."""
    loop = asyncio.get_running_loop()
    place = await loop.getaddrinfo(proxy.host, proxy.port, type=socket.SOCK_STREAM)
    failure: OSError | None = None
    for family, kind, protocol, _, address in place:
        found = socket.socket(family, kind, protocol)
        try:
            found.setblocking(False)
            await loop.sock_connect(found, address)
        except OSError as error:
            found.close()
            failure = failure or error
            continue
        except BaseException:
            found.close()
            raise
        return await _connected_on(loop, found, proxy, host, port)
    raise OSError(f"the proxy at {proxy.host}:{proxy.port} cannot be reached: {failure}")


async def _connected_on(
    loop: asyncio.AbstractEventLoop, found: socket.socket, proxy: HttpProxy, host: str, port: int
) -> socket.socket:
    try:
        await loop.sock_sendall(found, _request(proxy, host, port))
        answer = bytearray()
        # The broker says nothing before it is spoken to, so that nothing follows the answer.
        while _END not in answer:
            data = await loop.sock_recv(found, 4096)
            answer += data
            if not data or len(answer) > _ANSWER_SIZE_MAX:
                raise OSError(f"what answers at {proxy.host}:{proxy.port} is no proxy")
        status = bytes(answer).split(b"\r\n", 1)[0].decode("latin-1")
        words = status.split(" ", 2)
        if not words[0].startswith("HTTP/") or len(words) < 2:
            raise OSError(f"what answers at {proxy.host}:{proxy.port} is no proxy")
        if words[1] != "200":
            raise OSError(f"the proxy at {proxy.host}:{proxy.port} refuses: {status}")
    except BaseException:
        found.close()
        raise
    return found


def _request(proxy: HttpProxy, host: str, port: int) -> bytes:
    where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    lines = [f"CONNECT {where} HTTP/1.1", f"Host: {where}"]
    if proxy.username:
        secret = base64.b64encode(f"{proxy.username}:{proxy.password}".encode()).decode()
        lines.append(f"Proxy-Authorization: Basic {secret}")
    return "\r\n".join([*lines, "", ""]).encode()
