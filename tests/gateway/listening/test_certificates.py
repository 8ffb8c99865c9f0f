"""The development authority: made once, private where it must be, trusted by strict clients."""

import ipaddress
import ssl
import stat
from pathlib import Path

import pytest
from cryptography import x509

from peeklock.gateway.listening.certificates import (
    AUTHORITY,
    FOLDER,
    ensure_authority,
    ensure_certificate,
    server_names,
)

NOW = 1_790_000_000_000
DAY_MS = 24 * 3_600_000
NAMES = ("localhost", "127.0.0.1", "::1")


def certificate_in(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


@pytest.mark.parametrize(
    ("host", "given", "more"),
    [
        ("127.0.0.1", (), ()),
        ("0.0.0.0", (), ()),
        ("::", (), ()),
        ("10.1.2.3", (), ("10.1.2.3",)),
        ("Bus.Example", ("other.example", "localhost"), ("other.example", "bus.example")),
    ],
)
def test_names_are_those_that_clients_use(
    host: str, given: tuple[str, ...], more: tuple[str, ...]
) -> None:
    assert server_names(host, given) == (*NAMES, *more)


def test_an_authority_is_made_once(tmp_path: Path) -> None:
    data = tmp_path / "not" / "there"
    path = ensure_authority(data, NOW)
    assert path == data / FOLDER / AUTHORITY
    made = path.read_bytes()
    assert ensure_authority(data, NOW + 365 * DAY_MS).read_bytes() == made
    assert [entry.name for entry in data.iterdir()] == [FOLDER]


def test_keys_are_for_their_owner_only(tmp_path: Path) -> None:
    issued = ensure_certificate(tmp_path, NAMES, NOW)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in issued.path.parent.iterdir()}
    assert modes["ca.key"] == 0o600
    assert modes["server.pem"] == 0o600
    assert set(modes) == {"ca.key", "ca.pem", "server.pem"}
    assert b"PRIVATE" not in (tmp_path / FOLDER / AUTHORITY).read_bytes()


def test_a_certificate_has_all_that_strict_clients_want(tmp_path: Path) -> None:
    issued = ensure_certificate(tmp_path, (*NAMES, "bus.example"), NOW)
    authority = certificate_in(tmp_path / FOLDER / AUTHORITY)
    server = certificate_in(issued.path)
    server.verify_directly_issued_by(authority)
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost", "bus.example"]
    addresses = [ipaddress.ip_address("127.0.0.1"), ipaddress.ip_address("::1")]
    assert names.get_values_for_type(x509.IPAddress) == addresses
    constraints = authority.extensions.get_extension_for_class(x509.BasicConstraints)
    assert constraints.critical
    assert constraints.value.ca
    known = server.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value
    own = authority.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    assert known.key_identifier == own.digest
    # OpenSSL reads both from the one file.
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(issued.path)


def test_a_certificate_stays_until_a_month_before_its_end(tmp_path: Path) -> None:
    first = ensure_certificate(tmp_path, NAMES, NOW)
    made = first.path.read_bytes()
    assert first.renew_at == NOW + 335 * DAY_MS
    again = ensure_certificate(tmp_path, NAMES, first.renew_at - 1)
    assert again.path.read_bytes() == made
    assert again.renew_at == first.renew_at
    renewed = ensure_certificate(tmp_path, NAMES, first.renew_at)
    assert renewed.path.read_bytes() != made
    assert renewed.renew_at == first.renew_at + 335 * DAY_MS


def test_other_names_need_another_certificate(tmp_path: Path) -> None:
    first = ensure_certificate(tmp_path, NAMES, NOW).path.read_bytes()
    authority = (tmp_path / FOLDER / AUTHORITY).read_bytes()
    second = ensure_certificate(tmp_path, (*NAMES, "bus.example"), NOW).path.read_bytes()
    assert second != first
    assert (tmp_path / FOLDER / AUTHORITY).read_bytes() == authority


@pytest.mark.parametrize("damage", [b"", b"nonsense", b"[]\n"])
def test_a_damaged_certificate_is_made_anew(tmp_path: Path, damage: bytes) -> None:
    path = ensure_certificate(tmp_path, NAMES, NOW).path
    path.write_bytes(damage)
    ensure_certificate(tmp_path, NAMES, NOW)
    certificate_in(path)


def test_an_authority_that_ends_makes_room_for_another(tmp_path: Path) -> None:
    first = ensure_authority(tmp_path, NOW).read_bytes()
    later = NOW + 10 * 365 * DAY_MS - 300 * DAY_MS
    issued = ensure_certificate(tmp_path, NAMES, later)
    assert (tmp_path / FOLDER / AUTHORITY).read_bytes() != first
    # The old one is kept, for whoever wonders what was trusted.
    assert (tmp_path / f"{FOLDER}-until-{later}" / AUTHORITY).read_bytes() == first
    authority = certificate_in(tmp_path / FOLDER / AUTHORITY)
    certificate_in(issued.path).verify_directly_issued_by(authority)


def test_an_authority_without_its_key_is_replaced(tmp_path: Path) -> None:
    first = ensure_authority(tmp_path, NOW)
    made = first.read_bytes()
    first.with_name("ca.key").unlink()
    assert ensure_authority(tmp_path, NOW).read_bytes() != made
