"""Entry point of ``lakesink``.

Exit codes: 0 everything is well; 1 a check found something wrong or missing; 2 a check could not run; 3 an operator
accepted everything that the checks found.
"""

import gc
import logging
from typing import Any

import click

from lakesink._version import __version__
from lakesink_protocol.suggest import did_you_mean
from lakesink_tools.cli.commands import COMMANDS

_OBJECTS_BETWEEN_COLLECTIONS = 250_000


class _Commands(click.Group):
    """Suggests the nearest command for an unknown one."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            ctx.fail(f"No such command {args[0][:60]!r}. {did_you_mean(args[0], self.commands)}")
        return super().resolve_command(ctx, args)


@click.group(cls=_Commands, commands=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="lakesink")
def main(**_: Any) -> None:
    """Exactly-once sink from Spark Structured Streaming into Iceberg tables: audit and operate its streams."""
    # Most objects live until the command ends; the collector would look at all snapshots many times.
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
    logging.getLogger().addHandler(logging.NullHandler())  # else Python prints warnings of libraries by itself
