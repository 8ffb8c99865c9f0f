"""`peeklock import` and `peeklock export`: a namespace out of a file, and into one."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from peeklock.cli import values
from peeklock.cli.broker_access import BrokerAccess, asks_broker
from peeklock.cli.connection import ConnectionProblem
from peeklock.cli.output import TABLE, Output, fail, print_json, print_table, progress
from peeklock.client.exceptions import ServiceBusError

if TYPE_CHECKING:
    from peeklock.cli.entities.plan import PlanStep
    from peeklock.configuration.content import ConfiguredNamespace

_STDIN: Final = Path("-")


def import_(
    broker: BrokerAccess,
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            exists=True,
            dir_okay=False,
            allow_dash=True,
            help="The emulator's Config.json, or a deployment template (ARM, or compiled Bicep); "
            "- reads standard input.",
        ),
    ],
    *,
    parameter: Annotated[
        list[str] | None,
        typer.Option("--parameter", "-p", metavar="KEY=VALUE", help="A parameter of a template."),
    ] = None,
    namespace: Annotated[
        str | None, typer.Option(help="Which one, where the file has several.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Tell what would change, and change nothing.")
    ] = False,
    output: Output = "table",
) -> None:
    """Create and update the entities that a file describes; others are left alone."""
    from peeklock.cli.entities.plan import ImportPlanner
    from peeklock.configuration.content import ConfigurationError
    from peeklock.configuration.writing import NotExpressible

    try:
        content, left_out = _read(file, parameter or [], namespace)
        planner = ImportPlanner(broker.administration())
        steps = planner.plan(content)
    except (ConfigurationError, NotExpressible) as error:
        fail(str(error))
    if not dry_run:
        _perform(steps)
    _tell(steps, left_out, dry_run, output)


def export(
    broker: BrokerAccess,
    *,
    format: Annotated[
        Literal["config", "arm"],
        typer.Option(help="The emulator's Config.json, or a deployment template."),
    ] = "config",
    file: Annotated[
        Path | None,
        typer.Option(dir_okay=False, help="Where to write it.", show_default="standard output"),
    ] = None,
) -> None:
    """Write all entities of the namespace into a file that import reads."""
    from peeklock.cli.entities.inventory import Inventory
    from peeklock.configuration.arm_writing import template_of
    from peeklock.configuration.writing import NotExpressible, document_of

    namespace = Inventory(broker.administration()).whole()
    try:
        document = (template_of if format == "arm" else document_of)(namespace)
    except NotExpressible as problem:
        fail(str(problem))
    if file is None:
        print_json(document)
        return
    try:
        file.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    except OSError as error:
        fail(f"{file} cannot be written: {error}")
    queues, topics = len(namespace.queues), len(namespace.topics)
    typer.echo(f"wrote {queues} queues and {topics} topics to {file}")


def _read(
    file: Path, parameters: list[str], namespace: str | None
) -> "tuple[ConfiguredNamespace, list[str]]":
    """Read a file of either kind, and tell what in it is not an entity's."""
    from peeklock.auth.rights import development_rule
    from peeklock.configuration import lenient_json
    from peeklock.configuration.arm import is_template, parse_template
    from peeklock.configuration.content import ConfigurationError
    from peeklock.configuration.file import parse_configuration

    try:
        raw = sys.stdin.buffer.read() if file == _STDIN else file.read_bytes()
        text = raw.decode("utf-8-sig")
        content = lenient_json.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigurationError(str(file), [f"cannot be read: {error}"]) from error
    if is_template(content):
        given = _parameters(parameters)
        template = parse_template(text, str(file), given, namespace)
        return template.namespace, list(template.left_out)
    if parameters:
        raise values.wrong("--parameter", "only templates have parameters")
    try:
        chosen = parse_configuration(text, str(file)).chosen(namespace)
    except LookupError as problem:
        raise ConfigurationError(str(file), [f"{problem.args[0]} (--namespace)"]) from problem
    has_keys = chosen.rules not in ((), (development_rule(),))
    place = f"AuthorizationRules of '{chosen.name}': the keys of the namespace"
    return chosen, [place] if has_keys else []


def _parameters(texts: list[str]) -> dict[str, str]:
    found = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise values.wrong("--parameter", f"'{text}' is not of the form key=value")
        found[key] = value
    return found


def _perform(steps: "list[PlanStep]") -> None:
    with progress("importing", len(steps)) as advance:
        for number, step in enumerate(steps):
            try:
                step.perform()
            except (ConnectionProblem, ServiceBusError) as problem:
                done = f"{number} of {len(steps)} changes are made"
                raise ConnectionProblem(
                    f"cannot {step.verb} {step.place.told}: {problem} ({done})"
                ) from problem
            advance()


def _tell(steps: "list[PlanStep]", left_out: list[str], dry_run: bool, output: str) -> None:
    if output != TABLE:
        print_json(
            {"dry_run": dry_run, "changes": [_told(s) for s in steps], "left_out": left_out}, output
        )
        return
    for place in left_out:
        typer.echo(f"left out: {place}", err=True)
    if not steps:
        typer.echo("nothing to change")
        return
    rows = [[step.verb, step.place.kind, step.place.path, _changes(step)] for step in steps]
    title = "What would change" if dry_run else "What was changed"
    print_table(title, ["", "kind", "path", "properties"], rows)


def _told(step: "PlanStep") -> dict[str, Any]:
    changes = {key: {"from": old, "to": new} for key, (old, new) in step.changes.items()}
    return {
        "verb": step.verb,
        "kind": step.place.kind,
        "path": step.place.path,
        "properties": changes,
    }


def _changes(step: "PlanStep") -> str:
    return "\n".join(
        f"{key}: {_text(new)}" if old is None else f"{key}: {_text(old)} → {_text(new)}"
        for key, (old, new) in step.changes.items()
    )


def _text(value: Any) -> str:
    return value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)


def add_to(app: typer.Typer) -> None:
    """Give the main command these commands."""
    app.command("import")(asks_broker(import_))
    app.command()(asks_broker(export))
