"""Reads TokenIssuers: whose JSON web tokens a namespace believes."""

from typing import Final

from peeklock.auth.issuer import AUDIENCES, REFRESH_MS, ROLES, SKEW_MS, TokenIssuer, is_safe_address
from peeklock.auth.rights import Rights, rights_from_names
from peeklock.configuration.section import Section

_SKEW_MS_MAX: Final = 600_000
_REFRESH_MS_MIN: Final = 10_000


def read_token_issuers(section: Section) -> tuple[TokenIssuer, ...]:
    """Read the issuers of a namespace; none where it names none."""
    found: dict[str, TokenIssuer] = {}
    for entry in section.sections("TokenIssuers") or []:
        issuer = _read_issuer(entry)
        if issuer.issuer and issuer.issuer in found:
            entry.note("Issuer", f"'{issuer.issuer}' is given twice")
        found[issuer.issuer] = issuer
    return tuple(found.values())


def _read_issuer(entry: Section) -> TokenIssuer:
    name = entry.text("Issuer")
    audiences = tuple(entry.texts("Audiences")) if entry.has("Audiences") else AUDIENCES
    keys_file, keys_url = entry.text("KeysFile", ""), entry.text("KeysUrl", "")
    skew_ms = entry.duration_ms("ClockSkew", SKEW_MS)
    refresh_ms = entry.duration_ms("KeysRefresh", REFRESH_MS)
    allows_plain = entry.flag("AllowPlain", default=False)
    roles = _read_roles(entry)
    entry.finish()
    if not audiences:
        entry.note("Audiences", "must have at least one entry")
    if bool(keys_file) == bool(keys_url):
        entry.note("KeysFile", "must be given, or KeysUrl, and not both")
    if keys_url and not is_safe_address(keys_url):
        # Who can answer there says whose tokens are good.
        entry.note("KeysUrl", f"'{keys_url}' is no address of https, or of http on this machine")
    if not 0 <= skew_ms <= _SKEW_MS_MAX:
        entry.note("ClockSkew", "must be between 0 and 10 minutes")
    if refresh_ms < _REFRESH_MS_MIN:
        entry.note("KeysRefresh", "must be at least 10 seconds")
    return TokenIssuer(
        name,
        audiences,
        keys_file=keys_file,
        keys_url=keys_url,
        roles=roles,
        skew_ms=skew_ms,
        refresh_ms=refresh_ms,
        allows_plain=allows_plain,
    )


def _read_roles(entry: Section) -> dict[str, Rights]:
    """Read what roles are worth; who says nothing means the roles that the service has."""
    listed = entry.sections("Roles")
    if listed is None:
        return dict(ROLES)
    roles: dict[str, Rights] = {}
    for each in listed:
        name, names = each.text("Name"), each.texts("Rights")
        each.finish()
        try:
            roles[name] = rights_from_names(names)
        except ValueError as error:
            each.note("Rights", str(error))
    return roles
