"""What a broker starts with: the file's content, or the defaults, once it is safe to serve them."""

from collections.abc import Iterable

from peeklock.auth.rights import DEVELOPMENT_KEY, AuthorizationRule
from peeklock.configuration.content import Configuration, ConfigurationError
from peeklock.configuration.file import load_configuration
from peeklock.settings import Settings


def configuration_for(settings: Settings) -> Configuration:
    """Return what these settings serve; a ConfigurationError says all that forbids it."""
    configuration = (
        Configuration() if settings.config is None else load_configuration(settings.config)
    )
    refuse_exposure(settings, configuration.all_rules())
    return configuration


def refuse_exposure(settings: Settings, rules: Iterable[AuthorizationRule]) -> None:
    """Raise a ConfigurationError where these rules must not be served on the chosen address."""
    rules = list(rules)
    problem = exposure_problem(settings, rules) or testing_problem(settings, rules)
    if problem is not None:
        raise ConfigurationError(f"--host {settings.host}", [problem])


def exposure_problem(settings: Settings, rules: Iterable[AuthorizationRule]) -> str | None:
    """Say why the listeners must not be opened: a key that everybody knows, on an open network."""
    if settings.is_loopback() or settings.allow_development_key:
        return None
    if not any(DEVELOPMENT_KEY in rule.signing_keys() for rule in rules):
        return None
    return (
        "this is not a loopback address, and the well-known development key "
        f"({DEVELOPMENT_KEY}) would let everybody in. Put AuthorizationRules with your own keys "
        "into the configuration file, or start with --allow-development-key if that is meant"
    )


def testing_problem(settings: Settings, rules: Iterable[AuthorizationRule]) -> str | None:
    """Say why a broker must not be under test there: others could move its clock and break it."""
    if not settings.is_testing or settings.is_loopback():
        return None
    if settings.allow_development_key and all(
        key == DEVELOPMENT_KEY for rule in rules for key in rule.signing_keys()
    ):
        return None  # whoever reaches it could do everything anyway
    return (
        "this is not a loopback address, and --testing would let everybody who reaches it move "
        "the clock and break connections. Listen on 127.0.0.1, or, in a container that is only "
        "for tests, serve nothing but the development key, with --allow-development-key"
    )
