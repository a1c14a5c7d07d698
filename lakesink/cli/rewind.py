"""The command ``rewind``: takes a checkpoint back to an earlier batch, for the replay after a rollback."""

import click

from lakesink.cli.output import Report, confirmed, number, reported


@click.command(help="Take the stopped query's CHECKPOINT back to a batch; what is removed is copied first.")
@click.argument("checkpoint")
@click.option("--to-batch", type=click.IntRange(-1), required=True, help="Newest batch to keep; -1 for none.")
@click.option("--backup", metavar="DIR", help="Where to copy the logs first.  [default: beside the checkpoint]")
@click.option("--yes", is_flag=True, help="Do not ask.")
@reported
def rewind(checkpoint: str, to_batch: int, backup: str | None, *, yes: bool) -> Report:
    """Exit code 2: the checkpoint cannot be taken back to that batch; nothing was changed."""
    from lakesink.audit.rewind import RewindableCheckpoint  # noqa: PLC0415 - help must not import fsspec

    place = RewindableCheckpoint(checkpoint)
    plan = place.plan(to_batch)
    if plan.files:
        which = f"batches {plan.batches[-1]} to {plan.batches[0]}" if plan.batches else f"all after batch {to_batch}"
        confirmed(f"Is the query stopped, and shall Spark run {which} again?", yes=yes)
    done = place.rewind(plan, backup)
    title = (
        f"The checkpoint ends at batch {to_batch}: {number(len(plan.batches))} batches will run again."
        if done.backup
        else f"Nothing to do: the checkpoint ends at batch {to_batch}."
    )
    hints = [f"What was removed is in {done.backup}"] if done.backup else []
    return Report(
        document={
            "checkpoint": checkpoint,
            "to_batch": to_batch,
            "removed": sorted(plan.batches),
            "files": len(plan.files),
            "backup": done.backup,
        },
        title=title,
        hints=[*hints, "Next: start the query again; lakesink replays the batches that the table lacks."],
    )
