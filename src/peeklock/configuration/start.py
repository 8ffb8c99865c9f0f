"""What a broker starts with: the file's content, or the defaults, once it is safe to serve them."""

from peeklock.auth.rights import DEVELOPMENT_KEY
from peeklock.configuration.content import Configuration, ConfigurationError
from peeklock.configuration.file import load_configuration
from peeklock.settings import Settings


def configuration_for(settings: Settings) -> Configuration:
    """Return what these settings serve; a ConfigurationError says all that forbids it."""
    configuration = (
        Configuration() if settings.config is None else load_configuration(settings.config)
    )
    problem = exposure_problem(settings, configuration)
    if problem is not None:
        raise ConfigurationError(f"--host {settings.host}", [problem])
    return configuration


def exposure_problem(settings: Settings, configuration: Configuration) -> str | None:
    """Say why the listeners must not be opened: a key that everybody knows, on an open network."""
    if settings.is_loopback() or settings.allow_development_key:
        return None
    if not configuration.uses_development_key():
        return None
    return (
        "this is not a loopback address, and the well-known development key "
        f"({DEVELOPMENT_KEY}) would let everybody in. Put AuthorizationRules with your own keys "
        "into the configuration file, or start with --allow-development-key if that is meant"
    )
