"""Which certificate is shown: a fresh one, or the owner's."""

import inspect
import shutil
from asyncio import sslproto
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from peeklock.clock import ManualClock
from peeklock.gateway.listening.certificates import ensure_certificate
from peeklock.gateway.listening.tls import Tls

NOW = 1_790_000_000_000
DAY_MS = 24 * 3_600_000
NAMES = ("localhost",)


def own_files(directory: Path) -> tuple[Path, Path]:
    """A certificate and its key as people have them: in two files."""
    made = ensure_certificate(directory / "issuer", NAMES, NOW).path.read_bytes()
    certificate, key = directory / "certificate.pem", directory / "key.pem"
    loaded = x509.load_pem_x509_certificate(made)
    certificate.write_bytes(loaded.public_bytes(serialization.Encoding.PEM))
    key.write_bytes(made[made.index(b"-----BEGIN PRIVATE") :])
    return certificate, key


def test_one_context_serves_until_its_certificate_is_old(tmp_path: Path) -> None:
    clock = ManualClock(NOW)
    tls = Tls.of_authority(clock, tmp_path, NAMES)
    first = tls.context
    clock.advance(334 * DAY_MS)
    assert tls.context is first
    clock.advance(2 * DAY_MS)
    renewed = tls.context
    assert renewed is not first
    assert tls.context is renewed


def test_a_certificate_that_cannot_be_renewed_serves_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock(NOW)
    tls = Tls.of_authority(clock, tmp_path, NAMES)
    first = tls.context
    shutil.rmtree(tmp_path)
    tmp_path.write_text("in the way")
    clock.advance(336 * DAY_MS)
    assert tls.context is first
    assert "certificate-not-renewed" in caplog.text
    tmp_path.unlink()
    # It is not tried with every connection.
    assert tls.context is first
    clock.advance(3_600_000)
    assert tls.context is not first


def test_own_files_are_shown(tmp_path: Path) -> None:
    clock = ManualClock(NOW)
    tls = Tls.of_files(clock, *own_files(tmp_path))
    first = tls.context
    clock.advance(1000 * DAY_MS)
    assert tls.context is first


def test_own_files_that_do_not_fit_are_named(tmp_path: Path) -> None:
    certificate, _ = own_files(tmp_path)
    (tmp_path / "other").mkdir()
    _, key = own_files(tmp_path / "other")
    with pytest.raises(OSError, match=r"certificate\.pem and .*key\.pem"):
        Tls.of_files(ManualClock(NOW), certificate, key)


def test_a_key_with_a_password_asks_nobody(tmp_path: Path) -> None:
    certificate, key = own_files(tmp_path)
    loaded = serialization.load_pem_private_key(key.read_bytes(), password=None)
    key.write_bytes(
        loaded.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    with pytest.raises(OSError, match="no certificate with its key"):
        Tls.of_files(ManualClock(NOW), certificate, key)


def test_a_connection_with_tls_costs_little_memory() -> None:
    """The standard library still makes its buffer as large as we say."""
    assert "bytearray(self.max_size)" in inspect.getsource(sslproto.SSLProtocol)
    assert sslproto.SSLProtocol.max_size == 32 * 1024
