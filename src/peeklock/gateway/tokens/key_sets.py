"""JSON web key sets: fetched in a few seconds or not at all, and read key by key."""

import contextlib
import hashlib
import http.client
import socket
import threading
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias, final
from urllib.parse import urlsplit

from peeklock.auth.issuer import is_safe_address

if TYPE_CHECKING:
    import jwt

# PyJWT is imported where it is used, first of all beside the loop when keys are read: a broker that
# believes nobody starts without it.

# Public keys only: with these nobody can use a published key as the secret of an HMAC, and a token
# without a signature is none.
ALGORITHMS: Final = frozenset(
    {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}
)
KEYS_BYTES_MAX: Final = 1 << 20
_KEYS_MAX: Final = 1_000
FETCH_S_MAX: Final = 5.0


@final
@dataclass(frozen=True, slots=True)
class SigningKey:
    """A public key with the one algorithm that it is for."""

    key: Any
    algorithm: str
    # What tells it from others, whatever it is called and whatever else is published beside it.
    identity: bytes


Keys: TypeAlias = dict[str, SigningKey]


def identities(keys: Keys) -> dict[str, bytes]:
    """Tell which keys these are, by their names."""
    return {name: key.identity for name, key in keys.items()}


def fetch(url: str, seconds: float = FETCH_S_MAX) -> bytes:
    """Fetch what is at an address; to be called beside the loop. Whatever takes its time, a name
    server or somebody who sends a byte now and then, a TimeoutError ends it."""
    fetching = _Fetching(url, seconds)
    # Not a thread that anybody waits for: looking up a name cannot be broken off.
    thread = threading.Thread(target=fetching.run, name="peeklock-keys", daemon=True)
    thread.start()
    thread.join(seconds)
    return fetching.outcome(is_over=thread.is_alive())


def read_keys(document: Any) -> tuple[Keys, list[str]]:
    """Read a key set; answers also why some keys of it are not used, each with its name.

    A ValueError says that it has none that signs.
    """
    import jwt

    entries = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(entries, list) or not all(isinstance(each, dict) for each in entries):
        raise ValueError("it is no JSON web key set, an object with a list of keys")
    if len(entries) > _KEYS_MAX:
        raise ValueError(f"it has more than {_KEYS_MAX} keys")
    keys: Keys = {}
    unused: list[str] = []
    for at, entry in enumerate(entries):
        # Keys for encryption, symmetric ones and kinds that we do not know are nothing to us.
        if entry.get("use", "sig") != "sig" or entry.get("kty") not in ("RSA", "EC", "OKP"):
            continue
        name = str(entry.get("kid", f"#{at}"))
        try:
            published = jwt.PyJWK(entry)
            if published.algorithm_name in ALGORITHMS:
                keys[name] = _signing_key(published)
        except jwt.exceptions.PyJWKError:  # its text has the whole key
            unused.append(f"{name}: its algorithm is not known here")
        except Exception as error:  # noqa: BLE001 - what is wrong with one key is nothing to others
            unused.append(f"{name}: {error}")
    if not keys:
        why = f" ({'; '.join(unused)[:500]})" if unused else ""
        raise ValueError(f"it has no public key that signs{why}")
    return keys, unused


def _signing_key(published: "jwt.PyJWK") -> SigningKey:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    algorithm = published.algorithm_name
    public = published.key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    identity = hashlib.sha256(algorithm.encode() + b"\n" + public).digest()
    return SigningKey(published.key, algorithm, identity)


@final
class _Fetching:
    """One fetch, in a thread of its own; at its deadline others cut off what it reads from."""

    def __init__(self, url: str, seconds: float) -> None:
        self.url: Final = url
        self.seconds: Final = seconds
        self._lock = threading.Lock()
        self._is_over = False
        self._opened: list[socket.socket] = []
        self._found = b""
        self._error: Exception | None = None

    def run(self) -> None:
        """Fetch; `outcome` tells what came of it."""
        # No proxy for http: it would not be this machine that answers.
        proxies = {name: at for name, at in urllib.request.getproxies().items() if name == "https"}
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler(proxies), _Http(self), _Https(self), _Redirects()
        )
        try:
            with opener.open(self.url, timeout=self.seconds) as answer:
                self._found = answer.read(KEYS_BYTES_MAX + 1)
        except urllib.error.HTTPError as error:
            error.close()
            self._error = error
        except Exception as error:  # noqa: BLE001 - whatever it is, somebody else tells it
            self._error = error

    def outcome(self, *, is_over: bool) -> bytes:
        """Give what was fetched, or raise why it was not; where time is over, end it."""
        if is_over:
            with self._lock:
                self._is_over = True
                for each in self._opened:
                    with contextlib.suppress(OSError):
                        each.shutdown(socket.SHUT_RDWR)
            raise TimeoutError(f"it has not come within {self.seconds:g} seconds")
        if self._error is not None:
            raise self._error
        return self._found

    def opened(self, connected: socket.socket) -> None:
        """Know what to cut off."""
        with self._lock:
            if self._is_over:
                raise TimeoutError("it is too late")
            self._opened.append(connected)


class _Http(urllib.request.HTTPHandler):
    def __init__(self, fetching: _Fetching) -> None:
        super().__init__()
        self._fetching = fetching

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        fetching = self._fetching

        class Connection(http.client.HTTPConnection):
            def connect(self) -> None:
                super().connect()
                fetching.opened(self.sock)

        return self.do_open(Connection, req)


class _Https(urllib.request.HTTPSHandler):
    def __init__(self, fetching: _Fetching) -> None:
        super().__init__()
        self._fetching = fetching

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        fetching = self._fetching

        class Connection(http.client.HTTPSConnection):
            def connect(self) -> None:
                super().connect()
                fetching.opened(self.sock)

        return self.do_open(Connection, req)


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows no way that is less safe than the one before."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: Any,
        code: int,
        msg: str,
        headers: Any,
        newurl: str,
    ) -> urllib.request.Request | None:
        is_downgrade = urlsplit(req.full_url).scheme == "https" and not newurl.startswith("https:")
        if is_downgrade or not is_safe_address(newurl):
            fp.close()
            raise ValueError(f"it leads to '{newurl}', which is neither https nor this machine")
        return super().redirect_request(req, fp, code, msg, headers, newurl)
