"""Entry point of ``lakesink``. A command is imported when it is named: help and version answer at once.

Exit codes: 0 all is well; 1 something was looked at and is not well, or is not there; 2 it could not be looked at;
3 nothing is wrong but what an operator accepted.
"""

import importlib
import logging
from typing import Any

import click

from lakesink import __version__
from lakesink.cli.output import Report, reported
from lakesink_protocol.suggest import did_you_mean

COMMANDS = {
    "adopt": "Go on with a stream that Iceberg's own Spark sink wrote.",
    "as-of": "The snapshot of a batch, a time or a tag, and SQL to read it.",
    "audit": "What arrived, proved from the table alone.",
    "certify": "Is a catalog fit for exactly-once? Asked by doing.",
    "demo": "Real flights, a driver killed twice, and the proof.",
    "diff": "Rows that came after one batch, up to another.",
    "engines": "Configuration and first queries for another engine.",
    "doctor": "Is everything here that a stream needs, and what to fix.",
    "explain": "What an error means, and what to do about it.",
    "forget": "Retire a sink: its ledger entry and its tag.",
    "init": "A commented configuration and a first stream that runs as it is.",
    "pack": "What the executors of a cluster need, as one archive.",
    "log": "Batches of a table: snapshots, rows, files, bytes, offsets, time.",
    "restore": "Set a lost ledger entry again, from the newest batch.",
    "rewind": "Take a checkpoint back, for the replay after a rollback.",
    "status": "How each sink of a table stands. Without a name: every sink of a catalog.",
}
"""What help says about each command before its module, `lakesink.cli.<name>`, is imported."""


class LazyGroup(click.Group):
    """A group that knows its commands by name and imports one only to run it."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Names, in the order of help."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - as above
        """The command, imported now."""
        if cmd_name not in COMMANDS:
            return None
        name = cmd_name.replace("-", "_")
        try:
            command: click.Command = getattr(importlib.import_module(f"lakesink.cli.{name}"), name)
        except Exception as error:  # noqa: BLE001 - PyIceberg reads its configuration when it is imported
            return _failed(error)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, with the nearest name for one that is not known."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            ctx.fail(f"No such command {args[0][:60]!r}. {did_you_mean(args[0], COMMANDS)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - as above
        """The list of commands in help."""
        with formatter.section("Commands"):
            formatter.write_dl(sorted(COMMANDS.items()))


def _failed(error: Exception) -> click.Command:
    """A command in the place of one that cannot be imported: it reports that error."""

    @click.command(context_settings={"ignore_unknown_options": True, "allow_extra_args": True})
    @reported
    def fail() -> Report:
        raise error

    return fail


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="lakesink")
def main(**_: Any) -> None:
    """Exactly-once sink from Spark Structured Streaming into Iceberg tables: look at what it did."""
    logging.getLogger().addHandler(logging.NullHandler())  # else Python prints warnings of libraries by itself
