"""Reads AuthorizationRules: who may do what, on the namespace or on one entity."""

from typing import Final

from peeklock.auth.rights import AuthorizationRule, rights_from_names
from peeklock.configuration.section import Section

_RULES_MAX: Final = 12


def read_authorization_rules(section: Section) -> tuple[AuthorizationRule, ...] | None:
    """Read the rules of a section, or None where it has no list of them."""
    entries = section.sections("AuthorizationRules")
    if entries is None:
        return None
    if len(entries) > _RULES_MAX:
        section.note("AuthorizationRules", f"has {len(entries)} rules, at most {_RULES_MAX} go")
    rules: dict[str, AuthorizationRule] = {}
    for entry in entries:
        rule = _read_rule(entry)
        if rule.name in rules:
            entry.note("Name", f"'{rule.name}' is given twice")
        rules[rule.name] = rule
    return tuple(rules.values())


def _read_rule(entry: Section) -> AuthorizationRule:
    name = entry.text("Name")
    primary_key = entry.text("PrimaryKey")
    secondary_key = entry.text("SecondaryKey", "")
    names = entry.texts("Rights")
    entry.finish()
    if entry.has("Name") and not name:
        entry.note("Name", "must not be empty")
    if entry.has("PrimaryKey") and not primary_key:
        entry.note("PrimaryKey", "must not be empty")
    try:
        rights = rights_from_names(names)
    except ValueError as error:
        entry.note("Rights", str(error))
        rights = 0
    return AuthorizationRule(name, primary_key, secondary_key, rights)
