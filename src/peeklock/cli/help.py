"""Help that is never cut off: options in their groups, each text as long as it is."""

from collections.abc import Callable
from typing import Any, Final, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

_Command = TypeVar("_Command", bound=Callable[..., Any])

_OPTIONS: Final = "Options"


class GroupedCommand(TyperCommand):
    """A command whose options are listed under the headings that they name."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """List arguments first, then each group of options."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                is_argument = parameter.param_type_name == "argument"
                panel = getattr(parameter, "rich_help_panel", None) or _OPTIONS
                groups.setdefault("Arguments" if is_argument else panel, []).append(record)
        for heading in sorted(groups, key=lambda name: (name != "Arguments", name != _OPTIONS)):
            with formatter.section(heading):
                formatter.write_dl(groups[heading])


class ListedGroup(TyperGroup):
    """A group that says of each command all of its first sentence."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """List the commands in the order in which they were added."""
        rows: list[tuple[str, str]] = []
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            if command is not None and not command.hidden:
                text = (command.help or "").strip().partition("\n\n")[0]
                rows.append((name, " ".join(text.split())))
        with formatter.section("Commands"):
            formatter.write_dl(rows)


class CommandGroup(typer.Typer):
    """A group of commands with such help."""

    def __init__(self, help: str, **options: Any) -> None:
        super().__init__(
            help=help,
            cls=ListedGroup,
            no_args_is_help=True,
            rich_markup_mode=None,
            pretty_exceptions_enable=False,
            context_settings={"help_option_names": ["-h", "--help"]},
            **options,
        )

    def command(self, name: str | None = None, **options: Any) -> Callable[[_Command], _Command]:
        """Add a command."""
        options.setdefault("cls", GroupedCommand)
        return super().command(name, **options)
