"""The command ``pack``: what the executors of a cluster need, in one archive for Spark to bring them."""

from pathlib import Path

import click

from lakesink.cli.output import Report, printable, progress, reported, size


@click.command("pack", help="Pack lakesink, and what its tasks need, as installed here, into FILE for a cluster.")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@reported
def pack(*, file: Path) -> Report:
    """Exit code 2: FILE is there already, cannot be written, or something is not installed."""
    from lakesink.cli import packing  # noqa: PLC0415 - help must not wait for it

    with progress() as say:
        say("packing")
        packed = packing.pack(file)
    shown = printable(str(file))
    options = f"--archives {shown}#{packing.FOLDER} --conf spark.executorEnv.PYTHONPATH={packing.FOLDER}"
    return Report(
        document={
            "file": str(file),
            "bytes": packed.size_bytes,
            "python": packed.python,
            "platform": packed.platform,
            "packages": dict(packed.packages),
        },
        title=f"{shown}: {len(packed.packages)} packages, {size(packed.size_bytes)}",
        hints=[
            f"For executors with Python {packed.python} on {packed.platform}; the Python itself is not in it.",
            f"Next: spark-submit {options} ...",
        ],
    )
