"""Reads the emulator's Config.json, unchanged and with its caps lifted."""

from pathlib import Path
from typing import Final

from peeklock.auth.rights import AuthorizationRule, rights_from_names
from peeklock.configuration import lenient_json
from peeklock.configuration.content import Configuration, ConfigurationError, ConfiguredQueue
from peeklock.configuration.section import Section
from peeklock.durations import LONGEST_DURATION_MS
from peeklock.entity.definition import FOREVER_MS, QueueDefinition, is_entity_path

_RULES_MAX: Final = 12
_NAMESPACE_LENGTH_MAX: Final = 50
_LOGGING_TYPES: Final = ("File", "Console", "File,Console", "Console,File")
# What a queue may carry and this version cannot do yet; a set one is refused, never ignored.
_LATER_FLAGS: Final = ("RequiresSession", "RequiresDuplicateDetection", "EnablePartitioning")
_LATER_NAMES: Final = ("ForwardTo", "ForwardDeadLetteredMessagesTo")


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
    namespaces = user.sections("Namespaces") or []
    if len(namespaces) != 1:
        user.note("Namespaces", f"must have one entry and has {len(namespaces)}; more: not yet")
    logging = user.section("Logging")
    if logging.text("Type", "Console") not in _LOGGING_TYPES:
        logging.note("Type", f"must be one of {'; '.join(_LOGGING_TYPES)}")
    for section in (logging, user, root):
        section.finish()
    return _read_namespace(namespaces[0]) if len(namespaces) == 1 else Configuration()


def _read_namespace(section: Section) -> Configuration:
    name = section.text("Name")
    if section.has("Name") and not (is_entity_path(name) and len(name) <= _NAMESPACE_LENGTH_MAX):
        section.note("Name", f"'{name}' is not a name of at most {_NAMESPACE_LENGTH_MAX} letters")
    queues: dict[str, ConfiguredQueue] = {}
    for queue_section in section.sections("Queues") or []:
        queue = _read_queue(queue_section)
        # Paths are matched without regard to case, so two that differ only there are one.
        key = queue.definition.path.lower()
        if key in queues:
            queue_section.note("Name", f"'{queue.definition.path}' is given twice")
        queues[key] = queue
    for topic in section.sections("Topics") or []:
        topic.note("", f"topics are not supported yet (topic '{topic.text('Name')}')")
    rules = _read_rules(section)
    section.finish()
    return Configuration(namespace=name, rules=rules, queues=tuple(queues.values()))


def _read_queue(section: Section) -> ConfiguredQueue:
    name = section.text("Name")
    properties = section.section("Properties")
    definition = _read_definition(name, properties)
    rules = _read_rules(section)
    section.finish()
    for key, problem in definition.problems():
        (section if key == "Name" else properties).note(key, problem)
    return ConfiguredQueue(definition, rules or ())


def _read_definition(name: str, properties: Section) -> QueueDefinition:
    # What the file leaves out takes the service's default, which the definition knows.
    default = QueueDefinition(name)
    time_to_live_ms = properties.duration_ms("DefaultMessageTimeToLive", LONGEST_DURATION_MS)
    size_kb = properties.whole("MaxMessageSizeInKilobytes", default.message_size_max // 1024)
    definition = QueueDefinition(
        name,
        lock_duration_ms=properties.duration_ms("LockDuration", default.lock_duration_ms),
        delivery_count_max=properties.whole("MaxDeliveryCount", default.delivery_count_max),
        time_to_live_ms=FOREVER_MS if time_to_live_ms >= LONGEST_DURATION_MS else time_to_live_ms,
        dead_letter_on_expiration=properties.flag(
            "DeadLetteringOnMessageExpiration", default=default.dead_letter_on_expiration
        ),
        message_size_max=size_kb * 1024,
        batched_store_access=properties.flag(
            "EnableBatchedOperations", default=default.batched_store_access
        ),
        unlock_on_disconnect=properties.flag(
            "UnlockOnDisconnect", default=default.unlock_on_disconnect
        ),
        status=properties.text("Status", default.status),
        user_metadata=properties.text("UserMetadata", default.user_metadata),
    )
    # Read for its form only: without duplicate detection the window has no effect.
    properties.duration_ms("DuplicateDetectionHistoryTimeWindow", 0)
    for key in _LATER_FLAGS:
        if properties.flag(key, default=False):
            properties.note(key, f"is not supported yet (queue '{name}')")
    for key in _LATER_NAMES:
        if properties.text(key, ""):
            properties.note(key, f"is not supported yet (queue '{name}')")
    properties.finish()
    return definition


def _read_rules(section: Section) -> tuple[AuthorizationRule, ...] | None:
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
