"""The server's side of TLS: which certificate it shows, and that it never shows an ended one."""

import hashlib
import logging
import ssl
from asyncio import sslproto
from collections.abc import Callable
from pathlib import Path
from typing import Final, final

from peeklock.clock import Clock, Instant
from peeklock.gateway import logbook
from peeklock.gateway.listening import certificates

_LOG: Final = logging.getLogger("peeklock.listeners")

# A certificate that could not be made anew is tried again after this.
_RETRY_MS: Final = 3_600_000
_NEVER: Final = 1 << 62


# asyncio keeps a buffer of 256 KB for each connection with TLS, from its first byte on; a few
# records do as well, and 5,000 connections do not cost a gigabyte.
sslproto.SSLProtocol.max_size = 32 * 1024


@final
class Tls:
    """Gives the context for a new connection."""

    def __init__(self, clock: Clock, make: Callable[[Instant], "Shown"]) -> None:
        """`make` gives a context and when it must be made anew."""
        self._clock = clock
        self._make = make
        self._shown = make(clock.now())
        self._renew_at = self._shown.renew_at

    @classmethod
    def of_files(cls, clock: Clock, certificate: Path, key: Path) -> "Tls":
        """Show somebody's own certificate; it is read at the start and when that is asked for."""
        return cls(clock, lambda _now: Shown(certificate, key, _NEVER))

    @classmethod
    def of_authority(cls, clock: Clock, data: Path, names: tuple[str, ...]) -> "Tls":
        """Show a certificate of the development authority, which is made if need be."""

        def make(now: Instant) -> Shown:
            issued = certificates.ensure_certificate(data, names, now)
            return Shown(issued.path, None, issued.renew_at)

        return cls(clock, make)

    @property
    def context(self) -> ssl.SSLContext:
        """The context; made anew here when that is due, which takes a moment once a year."""
        now = self._clock.now()
        if now >= self._renew_at:
            try:
                self.show(self._make(now))
            except (OSError, ValueError) as error:
                # The old one serves on while it lasts.
                self._renew_at = now + _RETRY_MS
                _LOG.error("%s", logbook.line("certificate-not-renewed", text=str(error)))
        return self._shown.context

    def read_again(self) -> "Shown":
        """Read the files again; nothing is shown by that. An OSError says what is wrong."""
        return self._make(self._clock.now())

    def show(self, shown: "Shown") -> bool:
        """Show it from the next handshake on; tells whether it is another."""
        is_another = shown.fingerprint != self._shown.fingerprint
        self._shown = shown
        self._renew_at = shown.renew_at
        return is_another


@final
class Shown:
    """A certificate with its key, ready for handshakes, and when it must be made anew."""

    def __init__(self, certificate: Path, key: Path | None, renew_at: Instant) -> None:
        self.context: Final = _context(certificate, key)
        self.renew_at: Final = renew_at
        content = certificate.read_bytes() + (b"" if key is None else key.read_bytes())
        self.fingerprint: Final = hashlib.sha256(content).digest()


def _context(certificate: Path, key: Path | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        # A password is given so that nobody is asked for one on the terminal.
        context.load_cert_chain(certificate, key, password="")
    except ssl.SSLError as error:
        files = certificate if key is None else f"{certificate} and {key}"
        raise OSError(f"no certificate with its key can be read from {files}: {error}") from error
    return context
