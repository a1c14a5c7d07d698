"""`make bench`: lakesink and its peers, in turn, in one run; every result is checked before its time is believed."""

import json
import logging
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from pathlib import Path

import click

from benchmarks import (
    beside_flink,
    crowd,
    driver_memory,
    far_storage,
    from_kafka,
    growth,
    history,
    into_kafka,
    latency,
    many_rows,
    misfits,
    partitions,
    read_upserted,
    reading,
    recovery,
    slow_catalog,
    throughput,
    upserts,
    waterfall,
)
from benchmarks.page import write_page
from benchmarks.result import Result
from benchmarks.session import iceberg_conf, session
from lakesink_protocol.suggest import did_you_mean
from lakesink_tools.cli.output import progress
from proof.provenance import machine

Say = Callable[[str], None]

_ONLY_BY_NAME = ("W4/memory", "W10", "W11", "W12", "W13", "W14", "W15", "W16", "W17", "W18")
"""Workloads that take a quarter of an hour each."""


def results(folder: Path, keys: Collection[str], rounds: int, scale: float, kills: int, say: Say) -> Iterator[Result]:
    """One result after the other; of a workload that fails the reason, and the others go on."""
    chosen = [work for work in throughput.workloads(scale) if work.key in keys]
    if chosen:
        yield from _throughput(folder, chosen, rounds, say)
    for key, measure in others(scale, kills).items():
        if key in keys:
            yield or_failed(key, partial(measure, folder / key.replace("/", "-"), say))


def or_failed(key: str, measure: Callable[[], Result]) -> Result:
    """What a workload found, or why it could not be measured."""
    try:
        return measure()
    except Exception as error:  # noqa: BLE001 - whatever it is, what was measured before is kept
        return Result(key, f"failed: {type(error).__name__}: {str(error)[:300]}", (), (), failed=True)


def others(scale: float, kills: int) -> dict[str, Callable[[Path, Say], Result]]:
    """The workloads that are no whole streams in one session, by their keys."""
    return {
        "W2/Kafka": partial(from_kafka.measure, scale=scale),
        "W4/history": history.measure,
        "W4/memory": partial(driver_memory.measure, scale=scale),
        "W5": latency.measure,
        "W6": crowd.measure,
        "W7": partial(recovery.measure, kills=kills),
        "W8": slow_catalog.measure,
        "W9": partitions.measure,
        "W10": partial(upserts.measure, scale=scale),
        "W11": partial(misfits.measure, scale=scale),
        "W12": partial(far_storage.measure, scale=scale),
        "W13": partial(beside_flink.measure, scale=scale),
        "W14": partial(read_upserted.measure, scale=scale),
        "W15": partial(many_rows.measure, scale=scale),
        "W16": partial(reading.measure, scale=scale),
        "W17": partial(into_kafka.measure, scale=scale),
        "W18": partial(growth.measure, scale=scale),
        "waterfall": waterfall.measure,
    }


def asked(only: str | None) -> list[str]:
    """Keys of the workloads that somebody names, or of all that run unnamed.

    Raises:
        click.BadParameter: There is no workload of that name.
    """
    every = [*(work.key for work in throughput.workloads(1)), *others(1, 1)]
    if only is None:
        return [key for key in every if key not in _ONLY_BY_NAME]
    chosen = []
    for name in only.split(","):
        found = [key for key in every if key == name or (key.startswith(f"{name}/") and key not in _ONLY_BY_NAME)]
        if not found:
            raise click.BadParameter(f"there is no workload {name!r}. {did_you_mean(name, every)}")
        chosen += found
    return chosen


def _throughput(folder: Path, chosen: list[throughput.Workload], rounds: int, say: Say) -> Iterator[Result]:
    spark = session(iceberg_conf(folder))
    bench = throughput.Bench(spark, folder)
    for work in chosen:
        yield or_failed(work.key, partial(_compared, bench, work, rounds, say))
    spark.stop()


def _compared(bench: throughput.Bench, work: throughput.Workload, rounds: int, say: Say) -> Result:
    runs: dict[str, list[throughput.Run]] = defaultdict(list)
    for sink, run in bench.measure(work, rounds):
        runs[sink.name].append(run)
        say(f"{work.key}: {sink.name} {run.usage.seconds:.2f} s, {run.usage.cpu_seconds:.1f} s of processor")
    return throughput.compare(work, {sink.name: runs[sink.name] for sink in work.sinks})


def show(result: Result) -> str:
    """A result as text."""
    table = [result.heads, *(tuple(map(str, row)) for row in result.rows)]
    widths = [max(len(row[column]) for row in table) for column in range(len(result.heads))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]
    return "\n".join([f"\n{result.key}: {result.title}", *lines, *map(str, result.goals)])


def ending(found: Sequence[Result]) -> str:
    """In a sentence, how it went."""
    failed = [result.key for result in found if result.failed]
    if failed:
        return f"Not measured: {', '.join(failed)}."
    goals = [goal for result in found for goal in result.goals]
    missed = sum(not goal.reached for goal in goals)
    if not goals:
        return "No goal was set for this."
    return f"{missed} of {len(goals)} goals not reached." if missed else f"All {len(goals)} goals reached."


@click.command()
@click.option(
    "--only", "keys", callback=lambda _, __, only: asked(only), help="Workloads with a comma between: W1, W2/all, ..."
)
@click.option("--rounds", default=5, show_default=True, help="Runs of every sink behind each figure.")
@click.option("--scale", default=1.0, show_default=True, help="Times the rows.")
@click.option("--kills", default=6, show_default=True, help="Drivers that W7 kills.")
@click.option("--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--write", is_flag=True, help="Write docs/evidence/benchmarks.md with its picture and data.")
def main(keys: list[str], rounds: int, scale: float, kills: int, output: str, write: bool) -> None:  # noqa: FBT001 - click's way
    """Measure, judge, and say where lakesink is slower."""
    logging.getLogger("lakesink").setLevel(logging.ERROR)
    folder = Path(tempfile.mkdtemp(prefix="lakesink-bench-"))
    (folder / "warehouse").mkdir()
    found = []
    try:
        with progress() as say:
            for result in results(folder, keys, rounds, scale, kills, say):
                found.append(result)
                if output == "text":
                    print(show(result), flush=True)
                if write and not result.failed:
                    write_page({"machine": machine(), "rounds": rounds, "results": [result.to_json()]})
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if output == "json":
        document = {"machine": machine(), "rounds": rounds, "scale": scale, "results": [one.to_json() for one in found]}
        print(json.dumps(document))
    else:
        print(f"\n{ending(found)}")
        print("Next: docs/evidence/benchmarks.md has what was measured before; `--only W1 --rounds 9` looks closer.")
    raise SystemExit(2 if any(result.failed for result in found) else 0)


if __name__ == "__main__":
    main()
