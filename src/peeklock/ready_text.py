"""What a broker says when it listens: where, how clients connect, and what to type next."""

import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import Final

from peeklock.auth.rights import DEVELOPMENT_KEY, AuthorizationRule
from peeklock.configuration.content import Configuration
from peeklock.settings import AMQP_PORT, HTTP_PORT, Settings
from peeklock.version import VERSION, is_compiled

# A queue that no page of the tutorial has with other properties.
_QUEUE: Final = "first"


def say_ready(settings: Settings, configuration: Configuration, ports: dict[str, int]) -> None:
    """Print it, for people and for programs that wait for its first line."""
    sys.stdout.write("\n".join(ready_lines(settings, configuration, ports)) + "\n")
    sys.stdout.flush()


def ready_lines(
    settings: Settings, configuration: Configuration, ports: dict[str, int]
) -> list[str]:
    """Return the line that says ready, a connection string per namespace, and first commands."""
    places = ", ".join(
        f"{listener_name} on {settings.host}:{port}" for listener_name, port in ports.items()
    )
    form = "compiled" if is_compiled() else "plain"
    namespaces = configuration.namespaces
    queues = sum(len(namespace.queues) for namespace in namespaces)
    topics = sum(len(namespace.topics) for namespace in namespaces)
    ready = (
        f"Peeklock is ready: {VERSION} ({form}), {queues} queues and {topics} topics configured, "
        f"{places}"
    )
    strings: list[str] = []
    for namespace in namespaces:
        text = connection_string(settings, namespace.rules, ports["AMQP"])
        if text in strings:
            # The same key as of another namespace: only the host can tell them apart.
            text = connection_string(settings, namespace.rules, ports["AMQP"], namespace.name)
        strings.append(text)
    return [ready, *strings, *_next_steps(strings, ports)]


def connection_string(
    settings: Settings, rules: tuple[AuthorizationRule, ...], amqp_port: int, namespace: str = ""
) -> str:
    """Say how clients connect; a key that is a secret is not said.

    A namespace is named where its key does not tell it from others.
    """
    place = endpoint_place(settings, amqp_port, namespace)
    name, key = "<name of a rule>", "<its key>"
    for rule in rules:
        name = rule.name
        if DEVELOPMENT_KEY in rule.signing_keys():
            key = DEVELOPMENT_KEY
            break
    return (
        f"Endpoint=sb://{place};SharedAccessKeyName={name};SharedAccessKey={key};"
        "UseDevelopmentEmulator=true;"
    )


def endpoint_place(settings: Settings, amqp_port: int, namespace: str = "") -> str:
    """Name the host as clients here call it, with its port where they would not guess it."""
    # Who listens on all addresses listens on this machine's, too.
    is_here = settings.is_loopback() or settings.host in ("0.0.0.0", "::")
    host = "localhost" if is_here else settings.host
    if namespace:
        host = f"{namespace}.{host}"
    return host if amqp_port == AMQP_PORT else f"{host}:{amqp_port}"


def _next_steps(strings: list[str], ports: dict[str, int]) -> list[str]:
    """Say what can be typed as it stands; commands find a broker on its usual ports alone."""
    if not strings:
        return []
    program = _program()
    lines = ["Next, in another terminal:"]
    is_secret = DEVELOPMENT_KEY not in strings[0]
    if is_secret or ports["AMQP"] != AMQP_PORT:
        lines.append(f"  export PEEKLOCK_CONNECTION_STRING={shlex.quote(strings[0])}")
    http_port = ports.get("HTTP", HTTP_PORT)
    if http_port != HTTP_PORT:
        lines.append(f"  export PEEKLOCK_HTTP_PORT={http_port}")
    return [
        *lines,
        f"  {program} queue create {_QUEUE}",
        f"  {program} send {_QUEUE} --body hello",
        f"  {program} receive {_QUEUE}",
    ]


def _program() -> str:
    """Return what to type for the command that belongs to this interpreter."""
    here = Path(sys.executable).parent / "peeklock"
    if not here.exists():
        return f"{shlex.quote(sys.executable)} -m peeklock"
    if shutil.which("peeklock") == str(here):
        return "peeklock"
    relative = os.path.relpath(here)
    return shlex.quote(str(here) if relative.startswith("..") else relative)
