"""Tokens of Entra ID and other issuers, checked by the keys that the issuers publish.

The keys are in a file, or are fetched: at the start, every so often, and when a token does not fit
those that are known, which is how issuers change keys. Nothing is fetched on the loop, and tokens
cannot have it done more often than every ten seconds. Where fetching fails the keys of before stay;
what was signed with a key that an issuer publishes no more ends.
"""

import asyncio
import contextlib
import hashlib
import http.client
import json
import logging
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, TypeAlias, final

from peeklock.auth import refusal
from peeklock.auth.issuer import TokenIssuer, WebProof, WebToken
from peeklock.auth.refusal import AuthRefusal
from peeklock.auth.rights import NO_RIGHTS, Rights
from peeklock.clock import Instant
from peeklock.gateway import logbook
from peeklock.gateway.tokens.key_sets import (
    KEYS_BYTES_MAX,
    Keys,
    SigningKey,
    fetch,
    identities,
    read_keys,
)

# PyJWT is imported where it is used, first of all beside the loop when keys are read: a broker that
# believes nobody starts without it.

_LOG: Final = logging.getLogger("peeklock.issuers")

# No sooner than this after a fetch, whatever tokens say.
FETCH_PAUSE_S: Final = 10.0
# How many issuers are asked at the same time.
_FETCHES_MAX: Final = 16
_REMEMBERED_MAX: Final = 1_000
# Entra ID gives nobody a longer life. What is signed cannot be taken back but with its key.
_LIFE_H_MAX: Final = 28
_HOUR_MS: Final = 3_600_000
# Seconds since 1970 up to the year 9999 and beyond.
_SECONDS_MAX: Final = 1e12

# A token that was found good, from when on it is, and from when on its life is short enough.
_Checked: TypeAlias = tuple[WebToken, Instant, Instant]


class KeysError(Exception):
    """Keys that cannot be read; the text says which, and why."""


@final
class Issuers:
    """The issuers of one namespace, each with its keys of now."""

    def __init__(self, directory: Path, on_withdrawn: Callable[[], None] | None = None) -> None:
        """Files are looked for beside the configuration; `on_withdrawn` hears that a refresh has
        taken keys away."""
        self._directory: Final = directory
        self._on_withdrawn: Final = on_withdrawn
        self._issuers: dict[str, TokenIssuer] = {}
        self._keys: dict[str, Keys] = {}
        # The same, to find a key by what it is: thousands of grants may be held against it.
        self._published: dict[str, frozenset[bytes]] = {}
        # What was found good, by the digest of the token and whatever its time: it is checked again
        # when the keys are others.
        self._remembered: dict[bytes, _Checked] = {}
        # Which keys of theirs are of no use, because that is told once.
        self._unused: dict[str, list[str]] = {}
        self._wanted: dict[str, asyncio.Event] = {}
        self._tasks: list[asyncio.Task[None]] = []

    # --- whom we believe

    def load(self, issuers: tuple[TokenIssuer, ...]) -> dict[str, Keys]:
        """Read the keys of issuers, files and addresses alike; to be called beside the loop.

        An issuer that cannot be reached is believed once it can; wrong files are a KeysError.
        """
        if not issuers:
            return {}
        # Side by side: the start of a broker waits for the slowest of them, not for their sum.
        with ThreadPoolExecutor(min(len(issuers), _FETCHES_MAX)) as threads:
            loaded = list(threads.map(self._load_or_warn, issuers))
        return {each.issuer: keys for each, keys in zip(issuers, loaded, strict=True) if keys}

    def _load_or_warn(self, issuer: TokenIssuer) -> Keys | None:
        try:
            return self._load(issuer)
        except KeysError as error:
            if issuer.keys_file:
                raise
            _LOG.warning("%s", logbook.line("keys-not-fetched", text=str(error)))
            return None

    def hold(self, issuers: tuple[TokenIssuer, ...], keys: dict[str, Keys]) -> bool:
        """Let these hold from now on; tells whether anything is different. Keys that could not be
        fetched stay as they were."""
        known = {
            each.issuer: keys.get(each.issuer, self._keys.get(each.issuer, {})) for each in issuers
        }
        wanted = {each.issuer: each for each in issuers}
        is_same = wanted == self._issuers and _names(known) == _names(self._keys)
        self._issuers, self._keys = wanted, known
        self._published = {name: _published(each) for name, each in known.items()}
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
        refresh_s = issuer.refresh_ms / 1000
        pause_s = min(FETCH_PAUSE_S, refresh_s)
        while True:
            await asyncio.sleep(pause_s)
            # Without any key nobody's token can be checked: then it is tried again at once.
            if self._keys.get(issuer.issuer):
                with contextlib.suppress(TimeoutError):  # their time comes by itself
                    await asyncio.wait_for(wanted.wait(), refresh_s - pause_s)
            wanted.clear()
            try:
                keys = await asyncio.to_thread(self._load, issuer)
            except KeysError as error:
                _LOG.warning("%s", logbook.line("keys-not-fetched", text=str(error)))
                continue
            except Exception:  # noqa: BLE001 - keys must be fetched again, whatever it was
                _LOG.exception("%s", logbook.line("keys-not-fetched", issuer=issuer.issuer))
                continue
            self._renew(issuer, keys)

    def _renew(self, issuer: TokenIssuer, keys: Keys) -> None:
        """Let fetched keys hold; who lives on one that is gone is sent away."""
        if identities(keys) == identities(self._keys.get(issuer.issuer, {})):
            return
        before = self._published.get(issuer.issuer, frozenset())
        self._keys[issuer.issuer] = keys
        self._published[issuer.issuer] = _published(keys)
        self._remembered.clear()
        line = logbook.line("keys-changed", issuer=issuer.issuer, keys=len(keys))
        _LOG.info("%s", line)
        if not before <= _published(keys) and self._on_withdrawn is not None:
            self._on_withdrawn()

    def _load(self, issuer: TokenIssuer) -> Keys:
        where = issuer.keys_url or str(self._directory / issuer.keys_file)
        try:
            if issuer.keys_url:
                raw = fetch(issuer.keys_url)
            else:
                with (self._directory / issuer.keys_file).open("rb") as file:
                    raw = file.read(KEYS_BYTES_MAX + 1)
            if len(raw) > KEYS_BYTES_MAX:
                raise ValueError(f"it has more than {KEYS_BYTES_MAX} bytes")
            keys, unused = read_keys(json.loads(raw))
        except (OSError, ValueError, RecursionError, http.client.HTTPException) as error:
            text = str(error) or type(error).__name__
            raise KeysError(f"the keys of '{issuer.issuer}' at {where}: {text}") from error
        self._warn_of_unused(issuer, unused)
        return keys

    def _warn_of_unused(self, issuer: TokenIssuer, unused: list[str]) -> None:
        """Name keys that cannot be used, once and not with each fetch."""
        known = self._unused.get(issuer.issuer, [])
        self._unused[issuer.issuer] = unused
        for text in unused:
            if text not in known:
                line = logbook.line("key-not-used", issuer=issuer.issuer, text=text)
                _LOG.warning("%s", line)

    # --- tokens

    def read(self, token: str, now: Instant | None) -> WebToken | AuthRefusal:
        """Check a token; without an instant its time is no matter."""
        digest = hashlib.sha256(token.encode()).digest()
        found = self._remembered.get(digest)
        if found is None:
            checked = self._check(token)
            if isinstance(checked, AuthRefusal):
                return checked
            found = checked
            if len(self._remembered) >= _REMEMBERED_MAX:
                del self._remembered[next(iter(self._remembered))]
            self._remembered[digest] = found
        good, begins_at, short_at = found
        # What follows is told only to somebody whom the issuer knows.
        if now is not None and good.expires_at <= now:
            return refusal.expired(good.expires_at)
        if now is not None and begins_at > now:
            return refusal.not_yet(begins_at)
        if now is not None and short_at > now:
            return refusal.too_long(_LIFE_H_MAX)
        return good

    def current_rights(self, proof: WebProof) -> Rights:
        """Tell what a token gives by the keys and roles of now; its signature is still good if its
        key is still there."""
        issuer = self._issuers.get(proof.issuer)
        if issuer is None or not any(each in issuer.audiences for each in proof.audiences):
            return NO_RIGHTS
        if proof.key not in self._published.get(proof.issuer, ()):
            return NO_RIGHTS
        return issuer.rights_of(list(proof.roles))

    def _check(self, token: str) -> _Checked | AuthRefusal:
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
            self._want_keys(issuer)
            return refusal.untrusted("it names no key that its issuer has published so far")
        try:
            claims = jwt.decode(
                token,
                key.key,
                algorithms=[key.algorithm],
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
            if isinstance(error, (jwt.InvalidSignatureError, jwt.InvalidAlgorithmError)):
                # Its issuer may have a new key of the same name, or without any.
                self._want_keys(issuer)
            return refusal.untrusted(f"{error}".rstrip(".").lower())
        return _of_claims(claims, issuer, key)

    def _key(self, issuer: TokenIssuer, kid: Any) -> SigningKey | None:
        keys = self._keys.get(issuer.issuer, {})
        if kid is None:
            # Who has but one key need not name it.
            return next(iter(keys.values())) if len(keys) == 1 else None
        return keys.get(str(kid))

    def _want_keys(self, issuer: TokenIssuer) -> None:
        """Have keys fetched soon, because a token does not fit those of now."""
        if issuer.issuer in self._wanted:
            self._wanted[issuer.issuer].set()


def _names(keys: dict[str, Keys]) -> dict[str, dict[str, bytes]]:
    """What tells one key from another."""
    return {issuer: identities(each) for issuer, each in keys.items()}


def _published(keys: Keys) -> frozenset[bytes]:
    return frozenset(identities(keys).values())


def _of_claims(
    claims: dict[str, Any], issuer: TokenIssuer, key: SigningKey
) -> _Checked | AuthRefusal:
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
    aud = claims["aud"]
    meant = [aud] if isinstance(aud, str) else aud
    proof = WebProof(
        issuer.issuer,
        key.identity,
        tuple(each for each in issuer.audiences if each in meant),
        tuple(role for role in issuer.roles if role in listed),
    )
    rights = issuer.rights_of(list(proof.roles))
    good = WebToken(
        subject[:128],
        rights,
        expires + issuer.skew_ms,
        proof,
        allows_plain=issuer.allows_plain,
    )
    short_at = expires - _LIFE_H_MAX * _HOUR_MS - issuer.skew_ms
    return good, begins - issuer.skew_ms, short_at


def _instant(seconds: Any) -> Instant | None:
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        return None
    if not (math.isfinite(seconds) and 0 <= seconds < _SECONDS_MAX):
        return None
    return int(seconds * 1000)
