"""The story, as one command: ``python -m examples.kafka_windows``, or ``make kafka-demo``."""

import os
import secrets
import signal
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import click
from rich.console import Console

from lakesink_catalog.connect import HOME_VARIABLE
from lakesink_catalog.errors import SettingsError
from lakesink_catalog.words import number
from lakesink_tools.cli.output import Report, reported
from lakesink_tools.demo import flights, place
from lakesink_tools.demo.checks import Check
from servers.kafka import KafkaBroker, kafka_broker
from servers.missing import Missing

from .departures import PARTITIONS, departures
from .proof import Sent, prove
from .queries import TOPIC
from .report import Ending, report
from .setting import Setting
from .supervisor import Supervisor, plan_kills

ALL_DAYS = 365


@click.command(help="Kafka -> windows -> tables: kill driver and broker on the way, and prove every record and window.")
@click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path),
    default=Path("kafka-demo"),
    show_default=True,
    help="Made, or emptied if an earlier demo made it.",
)
@click.option(
    "--files", is_flag=True, help="Files that arrive in a folder, and no broker: needs Python and Java alone."
)
@click.option("--days", type=click.IntRange(1, ALL_DAYS), default=ALL_DAYS, show_default=True, help="Days of 2013.")
@click.option("--driver-kills", type=click.IntRange(0, 20), default=3, show_default=True)
@click.option("--broker-kills", type=click.IntRange(0, 20), default=2, show_default=True, help="None with --files.")
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), help="Of every chance; by default another one each time.")
@reported
def main(folder: Path, days: int, driver_kills: int, broker_kills: int, seed: int | None, *, files: bool) -> Report:
    """Exit code 1: some claim does not hold. 2: it could not run to its end."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))  # so that no broker is left behind
    place.check_machine()
    seed = secrets.randbelow(1_000_000) if seed is None else seed
    stage = place.prepare(folder)
    os.environ[HOME_VARIABLE] = str(stage.lakehouse)
    victims = ["driver"] * driver_kills + ["broker"] * (0 if files else broker_kills)
    try:
        return report(stage, _tell(stage, days, seed, victims, files=files))
    except Missing as error:
        raise SettingsError(
            "DEMO_PROGRAMS",
            str(error),
            data="Nothing was written.",
            action="Mend that, or run the demo without a broker: make kafka-demo ARGS=--files",
        ) from error


def _tell(stage: place.Place, days: int, seed: int, victims: list[str], *, files: bool) -> Ending:
    started = time.monotonic()
    say = Console(stderr=True, highlight=False, markup=False, soft_wrap=True).print
    flights.unpack(stage.home)
    say(f"Seed {seed}. {'Files that arrive in a folder' if files else 'A Kafka broker starts'}, then Spark.")
    with nullcontext() if files else kafka_broker(_made(stage.home / "kafka")) as broker:
        if broker is not None:
            broker.create_topic(TOPIC, PARTITIONS)
        setting = _setting(stage, days, seed, broker)
        say(f"{number(setting.events)} departures are sent; SIGKILLs to come: {', '.join(victims) or 'none'}.")
        supervisor = Supervisor(setting, stage, broker, say, plan_kills(victims, seed))
        supervisor.run()
        say("Everything has been sent and read. Counting it again, with DuckDB.")
        sent = Sent.to(setting)
    checks = (*prove(setting, sent), Check("SIGKILLs survived", len(victims), len(supervisor.killed)))
    return Ending(setting, supervisor, sent, checks, time.monotonic() - started)


def _setting(stage: place.Place, days: int, seed: int, broker: KafkaBroker | None) -> Setting:
    events = len(departures(stage.home / "flights.csv", days))
    setting = Setting(str(stage.home), broker.bootstrap if broker else "", days, seed, events)
    _made(setting.inbox)
    return setting


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


if __name__ == "__main__":
    main()
