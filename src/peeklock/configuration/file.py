"""Reads the emulator's Config.json, unchanged and with its caps lifted."""

from pathlib import Path
from typing import Final, final

from peeklock.auth.rights import development_rule
from peeklock.configuration import lenient_json
from peeklock.configuration.authorization import read_authorization_rules
from peeklock.configuration.content import (
    Configuration,
    ConfigurationError,
    ConfiguredNamespace,
)
from peeklock.configuration.issuers import read_token_issuers
from peeklock.configuration.queue import read_queue
from peeklock.configuration.section import Section
from peeklock.configuration.topic import read_topic
from peeklock.entity.definition import QUEUE, TOPIC, is_entity_path

_NAMESPACE_LENGTH_MAX: Final = 50
_LOGGING_TYPES: Final = ("File", "Console", "File,Console", "Console,File")


def load_configuration(path: Path) -> Configuration:
    """Read a configuration file; all that is wrong with it comes in one ConfigurationError."""
    try:
        # Editors on Windows begin a file with a byte order mark.
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(str(path), [f"cannot be read: {error}"]) from error
    return parse_configuration(text, str(path))


def parse_configuration(text: str, origin: str) -> Configuration:
    """Read the text of a configuration file; the origin is named in errors."""
    problems: list[str] = []
    try:
        content = lenient_json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(origin, [f"is not JSON: {error}"]) from error
    configuration = _read_file(Section("", content, problems))
    if problems:
        raise ConfigurationError(origin, problems)
    return configuration


def _read_file(root: Section) -> Configuration:
    user = root.section("UserConfig")
    if not root.has("UserConfig"):
        root.note("UserConfig", "is missing")
    entries = user.sections("Namespaces") or []
    if not entries:
        user.note("Namespaces", "must have at least one entry")
    logging = user.section("Logging")
    if logging.text("Type", "Console") not in _LOGGING_TYPES:
        logging.note("Type", f"must be one of {'; '.join(_LOGGING_TYPES)}")
    for section in (logging, user, root):
        section.finish()
    namespaces: dict[str, ConfiguredNamespace] = {}
    for entry in entries:
        namespace = _read_namespace(entry)
        key = namespace.name.lower()
        if key and key in namespaces:
            entry.note("Name", f"'{namespace.name}' is given twice")
        namespaces[key] = namespace
    return Configuration(tuple(namespaces.values()))


def _read_namespace(section: Section) -> ConfiguredNamespace:
    name = section.text("Name")
    # It stands in host names and in the names of stored things, where a slash would end it.
    is_name = is_entity_path(name) and len(name) <= _NAMESPACE_LENGTH_MAX and "/" not in name
    if section.has("Name") and not is_name:
        section.note("Name", f"'{name}' is not a name of at most {_NAMESPACE_LENGTH_MAX} letters")
    names = Names()
    queues = []
    for entry in section.sections("Queues") or []:
        queue = read_queue(entry)
        names.take(queue.definition.path, QUEUE, entry)
        queues.append(queue)
    topics = []
    for entry in section.sections("Topics") or []:
        topic = read_topic(entry)
        names.take(topic.definition.path, TOPIC, entry)
        topics.append(topic)
    rules = read_authorization_rules(section)
    if rules is None:
        rules = (development_rule(),)
    issuers = read_token_issuers(section)
    section.finish()
    return ConfiguredNamespace(name, rules, tuple(queues), tuple(topics), issuers)


@final
class Names:
    """The names of queues and topics, which are one set: a client says a path and not a kind."""

    def __init__(self) -> None:
        self._kinds: dict[str, str] = {}

    def take(self, path: str, kind: str, entry: Section) -> None:
        """Note a name that is taken. Two that differ only by case are one."""
        key = path.lower()
        if key in self._kinds and self._kinds[key] != kind:
            entry.note("Name", f"'{path}' is the name of a {self._kinds[key]} too")
        elif key in self._kinds:
            entry.note("Name", f"'{path}' is given twice")
        # A name that is missing is a problem already, and not one that stands twice.
        elif key:
            self._kinds[key] = kind
