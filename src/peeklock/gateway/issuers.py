"""Tokens of Entra ID and other issuers, checked by the keys that the issuers publish.

The keys are in a file, or are fetched: at the start, every so often, and when a token names a key
that is not known, which is how issuers change keys. Nothing is fetched on the loop, and tokens
cannot have it done more often than every ten seconds. Where fetching fails the keys of before stay.
"""

import asyncio
import contextlib
import json
import logging
import math
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias, final

from peeklock.auth import refusal
from peeklock.auth.issuer import TokenIssuer, WebToken
from peeklock.auth.refusal import AuthRefusal
from peeklock.clock import Instant
from peeklock.gateway import logbook

if TYPE_CHECKING:
    import jwt

# PyJWT is imported where it is used, first of all beside the loop when keys are read: a broker that
# believes nobody starts without it.

_LOG: Final = logging.getLogger("peeklock.issuers")

# Public keys only: with these nobody can use a published key as the secret of an HMAC, and a token
# without a signature is none.
ALGORITHMS: Final = frozenset(
    {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}
)
_KEYS_BYTES_MAX: Final = 1 << 20
_KEYS_MAX: Final = 1_000
_FETCH_S_MAX: Final = 5.0
# No sooner than this after a fetch, whatever tokens say.
FETCH_PAUSE_S: Final = 10.0
_REMEMBERED_MAX: Final = 1_000
# Seconds since 1970 up to the year 9999 and beyond.
_SECONDS_MAX: Final = 1e12

Keys: TypeAlias = "dict[str, jwt.PyJWK]"


class KeysError(Exception):
    """Keys that cannot be read; the text says which, and why."""


@final
class Issuers:
    """The issuers of one namespace, each with its keys of now."""

    def __init__(self, directory: Path) -> None:
        """Files are looked for beside the configuration."""
        self._directory: Final = directory
        self._issuers: dict[str, TokenIssuer] = {}
        self._keys: dict[str, Keys] = {}
        # What was found good, whatever its time: it is checked again when the keys are others.
        self._remembered: dict[str, tuple[WebToken, float]] = {}
        self._wanted: dict[str, asyncio.Event] = {}
        self._tasks: list[asyncio.Task[None]] = []

    # --- whom we believe

    def load(self, issuers: tuple[TokenIssuer, ...]) -> dict[str, Keys]:
        """Read the keys of issuers, files and addresses alike; to be called beside the loop.

        An issuer that cannot be reached is believed once it can; wrong files are a KeysError.
        """
        found: dict[str, Keys] = {}
        for each in issuers:
            try:
                found[each.issuer] = self._load(each)
            except KeysError as error:
                if each.keys_file:
                    raise
                _LOG.warning("%s", logbook.line("keys-not-fetched", text=str(error)))
        return found

    def hold(self, issuers: tuple[TokenIssuer, ...], keys: dict[str, Keys]) -> bool:
        """Let these hold from now on; tells whether anything is different. Keys that could not be
        fetched stay as they were."""
        known = {
            each.issuer: keys.get(each.issuer, self._keys.get(each.issuer, {})) for each in issuers
        }
        wanted = {each.issuer: each for each in issuers}
        is_same = wanted == self._issuers and _names(known) == _names(self._keys)
        self._issuers, self._keys = wanted, known
        self._remembered.clear()
        return not is_same

    @property
    def is_empty(self) -> bool:
        """Whether nobody is believed."""
        return not self._issuers

    # --- keeping the keys fresh

    def begin(self) -> None:
        """Fetch keys again and again, for the issuers of now."""
        self.end()
        for issuer in self._issuers.values():
            if issuer.keys_url:
                self._wanted[issuer.issuer] = asyncio.Event()
                self._tasks.append(asyncio.create_task(self._refresh(issuer)))

    def end(self) -> None:
        """Fetch nothing any more."""
        for task in self._tasks:
            task.cancel()
        self._tasks.clear()
        self._wanted.clear()

    async def _refresh(self, issuer: TokenIssuer) -> None:
        wanted = self._wanted[issuer.issuer]
        while True:
            await asyncio.sleep(min(FETCH_PAUSE_S, issuer.refresh_ms / 1000))
            with contextlib.suppress(TimeoutError):  # their time comes by itself
                await asyncio.wait_for(wanted.wait(), issuer.refresh_ms / 1000)
            wanted.clear()
            try:
                keys = await asyncio.to_thread(self._load, issuer)
            except KeysError as error:
                _LOG.warning("%s", logbook.line("keys-not-fetched", text=str(error)))
                continue
            if _names({"": keys}) != _names({"": self._keys.get(issuer.issuer, {})}):
                self._keys[issuer.issuer] = keys
                self._remembered.clear()
                line = logbook.line("keys-changed", issuer=issuer.issuer, keys=len(keys))
                _LOG.info("%s", line)

    def _load(self, issuer: TokenIssuer) -> Keys:
        import jwt

        where = issuer.keys_url or str(self._directory / issuer.keys_file)
        try:
            if issuer.keys_url:
                with urllib.request.urlopen(issuer.keys_url, timeout=_FETCH_S_MAX) as answer:
                    raw = answer.read(_KEYS_BYTES_MAX + 1)
            else:
                raw = (self._directory / issuer.keys_file).read_bytes()
            if len(raw) > _KEYS_BYTES_MAX:
                raise ValueError(f"it has more than {_KEYS_BYTES_MAX} bytes")
            return _read_keys(json.loads(raw))
        except (OSError, ValueError, RecursionError, jwt.PyJWTError) as error:
            raise KeysError(f"the keys of '{issuer.issuer}' at {where}: {error}") from error

    # --- tokens

    def read(self, token: str, now: Instant | None) -> WebToken | AuthRefusal:
        """Check a token; without an instant its time is no matter."""
        found = self._remembered.get(token)
        if found is None:
            checked = self._check(token)
            if isinstance(checked, AuthRefusal):
                return checked
            found = checked
            if len(self._remembered) >= _REMEMBERED_MAX:
                del self._remembered[next(iter(self._remembered))]
            self._remembered[token] = found
        good, begins_at = found
        # What follows is told only to somebody whom the issuer knows.
        if now is not None and good.expires_at <= now:
            return refusal.expired(good.expires_at)
        if now is not None and begins_at > now:
            return refusal.not_yet(int(begins_at))
        return good

    def _check(self, token: str) -> tuple[WebToken, float] | AuthRefusal:
        import jwt

        try:
            header = jwt.get_unverified_header(token)
            said = jwt.decode(token, options={"verify_signature": False})
        except (jwt.PyJWTError, ValueError, RecursionError) as error:
            return refusal.malformed(f"it is no JSON web token, {error}")
        issuer = self._issuers.get(str(said.get("iss")))
        if issuer is None:
            return refusal.untrusted("its issuer is none of those in the configuration")
        key = self._key(issuer, header.get("kid"))
        if key is None:
            return refusal.untrusted("it names a key that its issuer has not published so far")
        try:
            claims = jwt.decode(
                token,
                key.key,
                algorithms=[key.algorithm_name],
                audience=issuer.audiences,
                issuer=issuer.issuer,
                # Times are compared with the broker's own clock.
                options={
                    "require": ["exp", "iss", "aud"],
                    "verify_exp": False,
                    "verify_nbf": False,
                    "verify_iat": False,
                },
            )
        except jwt.InvalidAudienceError:
            return refusal.untrusted("it is for another audience")
        except (jwt.PyJWTError, ValueError) as error:
            return refusal.untrusted(f"{error}".rstrip(".").lower())
        return _of_claims(claims, issuer)

    def _key(self, issuer: TokenIssuer, kid: Any) -> "jwt.PyJWK | None":
        keys = self._keys.get(issuer.issuer, {})
        if kid is None:
            # Who has but one key need not name it.
            return next(iter(keys.values())) if len(keys) == 1 else None
        key = keys.get(str(kid))
        if key is None and issuer.issuer in self._wanted:
            self._wanted[issuer.issuer].set()
        return key


def _names(keys: dict[str, Keys]) -> dict[str, dict[str, Any]]:
    """What tells one key from another."""
    return {
        issuer: {name: key._jwk_data for name, key in each.items()} for issuer, each in keys.items()
    }


def _read_keys(document: Any) -> Keys:
    import jwt

    entries = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(entries, list) or not all(isinstance(each, dict) for each in entries):
        raise ValueError("it is no JSON web key set, an object with a list of keys")
    if len(entries) > _KEYS_MAX:
        raise ValueError(f"it has more than {_KEYS_MAX} keys")
    keys: Keys = {}
    for at, entry in enumerate(entries):
        # Keys for encryption, symmetric ones and kinds that we do not know are nothing to us.
        if entry.get("use", "sig") != "sig" or entry.get("kty") not in ("RSA", "EC", "OKP"):
            continue
        key = jwt.PyJWK(entry)
        if key.algorithm_name in ALGORITHMS:
            keys[str(entry.get("kid", f"#{at}"))] = key
    if not keys:
        raise ValueError("it has no public key that signs")
    return keys


def _of_claims(claims: dict[str, Any], issuer: TokenIssuer) -> tuple[WebToken, float] | AuthRefusal:
    expires = _instant(claims.get("exp"))
    begins = _instant(claims.get("nbf", 0))
    if expires is None or begins is None:
        return refusal.untrusted("its times are no numbers of seconds")
    roles = claims.get("roles", [])
    listed = [roles] if isinstance(roles, str) else roles
    if not isinstance(listed, list) or not all(isinstance(role, str) for role in listed):
        return refusal.untrusted("its roles are no list of texts")
    names = (claims.get(name) for name in ("oid", "appid", "azp", "sub"))
    subject = next((name for name in names if isinstance(name, str)), "nobody")
    good = WebToken(subject[:128], issuer.rights_of(listed), expires + issuer.skew_ms)
    return good, begins - issuer.skew_ms


def _instant(seconds: Any) -> Instant | None:
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        return None
    if not (math.isfinite(seconds) and 0 <= seconds < _SECONDS_MAX):
        return None
    return int(seconds * 1000)
