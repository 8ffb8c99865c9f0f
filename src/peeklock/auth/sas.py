"""Shared access signatures: reading, checking and making the tokens that clients sign."""

import base64
import hashlib
import hmac
import ipaddress
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, final
from urllib.parse import quote, unquote

from peeklock.auth.refusal import AuthRefusal, malformed
from peeklock.clock import Instant

_PREFIX: Final = "sharedaccesssignature "
_BEARER: Final = "bearer "
_REQUIRED: Final = ("sr", "sig", "se", "skn")
_SCHEME_AND_HOST: Final = re.compile(r"[a-z][a-z0-9+.-]*://[^/]*")
_PORT: Final = re.compile(r":[0-9]{1,5}$")

# The longest entity path, percent-encoded twice, with all other parts fits into a quarter of this.
TOKEN_LENGTH_MAX: Final = 16_384
# Clients encode twice at most. Whatever is encoded more often names nothing here, and to follow it
# to its end would take time that grows with the square of its length.
_DECODINGS_MAX: Final = 8
# No entity has a longer path. Without a bound the beginnings of one long path would fill memory.
_PREFIX_LENGTH_MAX: Final = 1_024
# Twelve digits of seconds reach beyond the year 9999; more is not a date but an attack.
_EXPIRY_DIGITS_MAX: Final = 12


@final
@dataclass(frozen=True, slots=True)
class ParsedSasToken:
    """A token taken apart; nothing in it is believed before `is_signed_with` says so."""

    resource: str
    rule_name: str
    expires_at: Instant
    # The signature covers these two as they stood in the token, still percent-encoded.
    signed_text: str
    signature: str

    def is_signed_with(self, key: str) -> bool:
        """Return whether the key made the signature; the time it takes says nothing about the
        key."""
        expected = _sign(self.signed_text, key)
        return hmac.compare_digest(expected.encode(), self.signature.encode())

    def __repr__(self) -> str:
        # Written out so that no signature reaches a log or a traceback.
        return (
            f"ParsedSasToken({self.resource!r}, {self.rule_name!r}, expires_at={self.expires_at})"
        )


def is_sas(text: str) -> bool:
    """Tell a SAS token by its content; the type that clients declare is often wrong."""
    return text[: len(_PREFIX)].lower() == _PREFIX


def is_jwt(text: str) -> bool:
    """Tell a JSON web token by its three parts of URL-safe base64."""
    if len(text) > TOKEN_LENGTH_MAX:
        return False
    parts = web_text(text).split(".")
    return len(parts) == 3 and all(part and _is_base64url(part) for part in parts)


def web_text(text: str) -> str:
    """Return a JSON web token without the word that stands before it in HTTP."""
    is_bearer = text[: len(_BEARER)].lower() == _BEARER
    return text[len(_BEARER) :].strip() if is_bearer else text


def parse_sas(text: str) -> ParsedSasToken | AuthRefusal:
    """Take a token apart; its parameters come in any order, and unknown ones are ignored."""
    if len(text) > TOKEN_LENGTH_MAX:
        return malformed(f"it has {len(text)} characters, at most {TOKEN_LENGTH_MAX} are read")
    if not is_sas(text):
        return malformed("it does not begin with 'SharedAccessSignature '")
    raw: dict[str, str] = {}
    for parameter in text[len(_PREFIX) :].strip().split("&"):
        name, equals, value = parameter.partition("=")
        if not equals:
            return malformed(f"'{name}' has no value")
        if name in raw:
            return malformed(f"'{name}' is given twice")
        raw[name] = value
    for name in _REQUIRED:
        if not raw.get(name):
            return malformed(f"'{name}' is missing")
    expiry = raw["se"]
    if not (expiry.isascii() and expiry.isdigit() and len(expiry) <= _EXPIRY_DIGITS_MAX):
        return malformed("'se' is not a whole number of seconds since 1970")
    return ParsedSasToken(
        resource=raw["sr"],
        rule_name=decode_until_stable(raw["skn"]),
        expires_at=int(expiry) * 1000,
        signed_text=f"{raw['sr']}\n{expiry}",
        signature=unquote(raw["sig"]),
    )


def generate_sas(resource: str, rule_name: str, key: str, expires_at: Instant) -> str:
    """Make a token for a resource such as `sb://localhost/orders`; the expiry is cut to seconds."""
    encoded = quote(resource, safe="")
    expiry = expires_at // 1000
    signature = quote(_sign(f"{encoded}\n{expiry}", key), safe="")
    name = quote(rule_name, safe="")
    return f"SharedAccessSignature sr={encoded}&sig={signature}&se={expiry}&skn={name}"


def resource_path(resource: str) -> str:
    """Reduce a resource or audience to its path: no scheme, host, port, query, case or encoding."""
    text = decode_until_stable(resource).partition("?")[0].lower()
    scheme = _SCHEME_AND_HOST.match(text)
    if scheme is not None:
        text = text[scheme.end() :]
    return "/".join(segment for segment in text.split("/") if segment)


def signed_path(resource: str, is_host: Callable[[str], bool]) -> str:
    """Reduce what a token was signed for to its path; some clients leave the scheme away.

    Then the host looks like a part of the path, with or without a port. `is_host` is asked about a
    whole path, the port left out, whether it begins with a host: it must know that by itself, and
    never from a request. An address with a port is a host whoever is asked.
    """
    path = resource_path(resource)
    if not path or names_its_host(resource):
        return path
    first, _, rest = path.partition("/")
    name = _PORT.sub("", first)
    if name != first and _is_address(name):
        return rest
    return rest if is_host(f"{name}/{rest}" if rest else name) else path


def names_its_host(resource: str) -> bool:
    """Return whether a resource says by its form which part of it is the host."""
    text = decode_until_stable(resource).partition("?")[0].lower()
    return bool(_SCHEME_AND_HOST.match(text))


def covers(prefix: str, path: str) -> bool:
    """Return whether a path is the prefix or lies below it; both are results of `resource_path`."""
    return prefix in ("", path) or path.startswith(prefix + "/")


def prefixes(path: str) -> list[str]:
    """List what covers a path, the shortest first: the namespace, and each of its beginnings."""
    found = [""]
    at = path.find("/")
    while 0 <= at <= _PREFIX_LENGTH_MAX:
        found.append(path[:at])
        at = path.find("/", at + 1)
    if path:
        found.append(path)
    return found


def decode_until_stable(text: str) -> str:
    """Undo percent-encoding, applied once or several times; some clients encode names twice."""
    for _ in range(_DECODINGS_MAX):
        decoded = unquote(text)
        if decoded == text:
            break
        text = decoded
    return text


def _sign(text: str, key: str) -> str:
    # The key is used as the text it is, although it looks like base64.
    digest = hmac.new(key.encode(), text.encode(), hashlib.sha256).digest()
    return base64.b64encode(digest).decode("ascii")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True


def _is_base64url(part: str) -> bool:
    return part.isascii() and part.replace("-", "a").replace("_", "a").rstrip("=").isalnum()
