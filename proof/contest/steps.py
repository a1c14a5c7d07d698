"""What happens in a case, step by step."""

import os
import shutil
import signal
from contextlib import suppress

from pyiceberg.table.update import RemoveSnapshotsUpdate

from lakesink_catalog.failpoints import VARIABLE
from proof.contest.case import Step
from proof.contest.driver import active_here, catalog_conf, named
from proof.contest.play import Player
from proof.drivers import said, source_file, wait_until
from proof.processes.evidence import local
from servers.fault_proxy import HttpFault, Kind
from servers.spark_cluster import spark_cluster
from testkit.harness import signal_all

FOUR_TASKS = {"spark.sql.files.minPartitionNum": "4"}
"""One for each of the four files."""


def arrive(first: int, last: int) -> Step:
    """Files arrive at the source: ``first`` to ``last - 1``, each with its numbered rows."""
    return lambda player: player.place.arrive(range(first, last))


def tidy_up(first: int, last: int) -> Step:
    """Files that were read long ago are removed from the source."""

    def step(player: Player) -> None:
        for file in range(first, last):
            source_file(player.place.source, file).unlink()

    return step


def run(files: int = 1) -> Step:
    """The streams run until their sources are used up, with so many files in a batch."""
    return lambda player: player.run(files)


def unlog(player: Player) -> None:
    """The newest entry of Spark's commit log is not there: the driver died before it wrote that."""
    player.place.unlog()


def back_up(player: Player) -> None:
    """The checkpoint is copied."""
    shutil.copytree(player.place.checkpoint, player.place.root / "backup")


def restore(player: Player) -> None:
    """The copy of the checkpoint takes the place of the checkpoint."""
    lose_checkpoint(player)
    (player.place.root / "backup").rename(player.place.checkpoint)


def lose_checkpoint(player: Player) -> None:
    """The checkpoint is gone."""
    shutil.rmtree(player.place.checkpoint)


def others_append(player: Player) -> None:
    """Another writer commits a row on the stream's branch."""
    player.place.others_append()


def main_moves(player: Player) -> None:
    """Another writer commits a row on ``main``, while the stream writes a branch."""
    player.place.main_moves()


def expire(player: Player) -> None:
    """Every snapshot that no branch and no tag holds is expired."""
    table = player.place.load()
    held = {ref.snapshot_id for ref in table.metadata.refs.values()}
    gone = [snapshot.snapshot_id for snapshot in table.metadata.snapshots if snapshot.snapshot_id not in held]
    if gone:
        table.catalog.commit_table(table, (), (RemoveSnapshotsUpdate(snapshot_ids=gone),))


def spoil(fault: HttpFault) -> Step:
    """Something goes wrong with the next commit request."""
    return lambda player: player.arm(fault)


def killed_at_the_answer(player: Player) -> None:
    """A driver of its own is killed when its next commit has landed and the answer is on its way."""
    player.arm(HttpFault(Kind.SILENCE))
    with player.driver() as driver:
        player.must(wait_until(player.spoilt.is_set, driver), "the driver ended before its commit")


def killed_at_each_point(player: Player) -> None:
    """A file arrives for each bad moment of the sink, and one more. A driver is killed at each moment, batch by batch.

    It replays what the one before left behind, goes on, and gets SIGKILL when all of its streams wait at the point.
    """
    points = player.sink.points
    for place in player.places:
        place.arrive(range(len(points) + 1))
    for batch, point in enumerate(points):
        failpoint = {VARIABLE: f"{point}@{batch}=pause:{player.log.parent}/pausing"}
        reached = f"lakesink.failpoint.reached name={point} batch={batch} "

        def all_are_there(line: str = reached) -> bool:
            return player.log.read_text().count(line) == len(player.places)

        with player.driver(master="local[1]", variables=failpoint) as driver:
            player.must(wait_until(all_are_there, driver), f"{point} of batch {batch} was not reached")


def two_drivers(player: Player) -> None:
    """A driver is stopped when it sends its next commit; a second one runs to its end; the first one goes on."""
    seconds: list[str] = []
    with player.driver() as first:

        def meanwhile() -> None:
            signal_all(first, signal.SIGSTOP)
            with player.driver() as second:
                seconds.append(said(second))
            signal_all(first, signal.SIGCONT)

        player.arm(HttpFault(Kind.SLOW), meanwhile)
        player.errors += [error for error in (said(first), *seconds) if error]
    player.must(bool(seconds), "the first driver ended before its commit")


def executors_killed(player: Player) -> None:
    """A stream on a cluster of two executors; both are killed when the first data file of the batch is whole."""
    data = local(player.place.load().location()) / "data"

    def has_whole_file() -> bool:
        return any(path.read_bytes()[-4:] == b"PAR1" and path.stat().st_size > 8 for path in data.rglob("*.parquet"))

    with spark_cluster(player.place.root / "cluster") as cluster:
        conf = {**cluster.conf, **FOUR_TASKS}
        with player.driver(files=4, master=cluster.master, slowly=True, conf=conf) as driver:
            player.must(wait_until(has_whole_file, driver), "the driver ended before a file was whole")
            executors = cluster.executors()
            player.must(bool(executors), "there were no executors")
            for pid in executors:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            error = said(driver)
    player.errors += [error] if error else []


def publish(player: Player) -> None:
    """Iceberg's procedure `publish_changes` is called for what was staged."""
    target = player.place.target
    active_here(player.spark)
    for name, value in catalog_conf(target).items():
        player.spark.conf.set(name, value)
    call = f"CALL {target.catalog}.system.publish_changes('{target.table}', '{player.place.case.wap_id}')"
    try:
        player.spark.sql(call).collect()
    except Exception as error:  # noqa: BLE001 - whatever comes of it is the answer
        player.publishing = named(error)
