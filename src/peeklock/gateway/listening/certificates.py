"""A certificate authority for development, made once per data directory, and what it signs.

Clients are told to trust `ca.pem`; the server's own certificate is signed anew whenever its names
change or its end is near. Files are only read when they are whole: each appears by a rename.
"""

import hashlib
import ipaddress
import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

from peeklock.clock import Instant

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

FOLDER: Final = "tls"
AUTHORITY: Final = "ca.pem"
_AUTHORITY_KEY: Final = "ca.key"
# Certificate and key in one file, so that they always belong together.
_SERVER: Final = "server.pem"

_DAY_MS: Final = 24 * 3_600_000
_AUTHORITY_MS: Final = 10 * 365 * _DAY_MS
_SERVER_MS: Final = 365 * _DAY_MS
# A certificate is made anew when less than this is left of it.
_NEAR_END_MS: Final = 30 * _DAY_MS
# Clocks differ: what is made now is valid for those that are behind.
_BACKDATED_MS: Final = _DAY_MS
_NAMES_ALWAYS: Final = ("localhost", "127.0.0.1", "::1")


@final
@dataclass(frozen=True, slots=True)
class Issued:
    """A server's certificate with its key in one file, and when it must be made anew."""

    path: Path
    renew_at: Instant


def server_names(host: str, given: Sequence[str]) -> tuple[str, ...]:
    """List what the certificate says: this machine, the address listened on, and names given."""
    names = [*_NAMES_ALWAYS, *given]
    try:
        if not ipaddress.ip_address(host).is_unspecified:
            names.append(str(ipaddress.ip_address(host)))
    except ValueError:
        names.append(host)
    return tuple(dict.fromkeys(name.lower() for name in names))


def ensure_authority(data: Path, now: Instant) -> Path:
    """Give the authority's certificate; it is made where it is missing or near its end."""
    folder = data / FOLDER
    authority = folder / AUTHORITY
    if authority.exists() and _note(folder / _AUTHORITY_KEY).get("expires", 0) > now + _SERVER_MS:
        return authority
    if folder.exists():
        # Whoever trusts the old one must be told to trust the new one; it is kept for reference.
        folder.rename(folder.with_name(f"{FOLDER}-until-{now}"))
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    making = data / f".{FOLDER}-{os.getpid()}"
    making.mkdir(mode=0o700)
    try:
        _make_authority(making, now)
        making.rename(folder)
    except OSError:
        shutil.rmtree(making, ignore_errors=True)
        # Another process made one at the same moment: that is as good.
        if not authority.exists():
            raise
    return authority


def ensure_certificate(data: Path, names: Sequence[str], now: Instant) -> Issued:
    """Give a certificate of the authority for these names; it is made when the old one won't do."""
    authority = ensure_authority(data, now)
    server = authority.with_name(_SERVER)
    fingerprint = hashlib.sha256(authority.read_bytes()).hexdigest()
    note = _note(server)
    expires: Instant = note.get("expires", 0)
    is_fitting = note.get("names") == list(names) and note.get("authority") == fingerprint
    if not is_fitting or expires - _NEAR_END_MS <= now:
        expires = now + _SERVER_MS
        note = {"names": list(names), "authority": fingerprint, "expires": expires}
        _write(server, note, _sign(authority, names, now, expires))
    return Issued(server, expires - _NEAR_END_MS)


# --- files: the first line of those that only we read says what would else have to be decoded


def _note(path: Path) -> dict[str, Any]:
    try:
        with path.open() as file:
            note = json.loads(file.readline())
    except (FileNotFoundError, ValueError):
        # Missing, or written by somebody else: it is made anew.
        return {}
    return note if isinstance(note, dict) else {}


def _write(path: Path, note: dict[str, Any], pem: bytes) -> None:
    making = path.with_name(f".{path.name}-{os.getpid()}")
    making.unlink(missing_ok=True)
    with os.fdopen(os.open(making, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(json.dumps(note).encode() + b"\n" + pem)
    making.rename(path)


# --- certificates; the library is loaded only where something is made


def _make_authority(folder: Path, now: Instant) -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    expires = now + _AUTHORITY_MS
    # The number tells authorities of several brokers apart where their names are listed.
    serial = x509.random_serial_number()
    name = _name(f"Peeklock development authority {serial % 10**6:06}")
    certificate = (
        _builder(name, name, key, serial, now, expires)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(is_authority=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    _write(folder / _AUTHORITY_KEY, {"expires": expires}, _key_pem(key))
    (folder / AUTHORITY).write_bytes(certificate.public_bytes(serialization.Encoding.PEM))


def _sign(authority: Path, names: Sequence[str], now: Instant, expires: Instant) -> bytes:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID

    issuer = x509.load_pem_x509_certificate(authority.read_bytes())
    pem = authority.with_name(_AUTHORITY_KEY).read_bytes().partition(b"\n")[2]
    issuer_key = serialization.load_pem_private_key(pem, password=None)
    assert isinstance(issuer_key, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key())
    serial = x509.random_serial_number()
    certificate = (
        _builder(_name("Peeklock"), issuer.subject, key, serial, now, expires)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(is_authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(_alternatives(names)), critical=False)
        .add_extension(identifier, critical=False)
        .sign(issuer_key, hashes.SHA256())
    )
    return certificate.public_bytes(serialization.Encoding.PEM) + _key_pem(key)


def _builder(
    subject: "x509.Name",
    issuer: "x509.Name",
    key: "EllipticCurvePrivateKey",
    serial: int,
    now: Instant,
    expires: Instant,
) -> "x509.CertificateBuilder":
    from cryptography import x509

    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(serial)
        .not_valid_before(_date(now - _BACKDATED_MS))
        .not_valid_after(_date(expires))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _usage(*, is_authority: bool) -> "x509.KeyUsage":
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        encipher_only=False,
        decipher_only=False,
    )


def _alternatives(names: Sequence[str]) -> "list[x509.GeneralName]":
    from cryptography import x509

    found: list[x509.GeneralName] = []
    for name in names:
        try:
            found.append(x509.IPAddress(ipaddress.ip_address(name)))
        except ValueError:
            found.append(x509.DNSName(name))
    return found


def _name(common_name: str) -> "x509.Name":
    from cryptography import x509

    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common_name)])


def _key_pem(key: "EllipticCurvePrivateKey") -> bytes:
    from cryptography.hazmat.primitives import serialization

    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _date(instant: Instant) -> datetime:
    return datetime.fromtimestamp(instant // 1000, tz=UTC)
