"""W11: what rows that do not fit cost: lakesink beside itself, with and without the options that take care of them.

Documents of ten columns. Each variant runs in turn with the plain stream of good documents: both meet the same noise.
"""

import shutil
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import lakesink
from benchmarks import data
from benchmarks.oracle import WrongRows
from benchmarks.result import Goal, Result
from benchmarks.session import CATALOG, TABLE_PROPERTIES, catalog_properties, session
from benchmarks.usage import measured
from lakesink.spark.rows.frame_schema import arrow_schema
from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.tables.tables import create_table

ROWS = 600_000
ROUNDS = 5
TABLE = "bench.events"
_EVERY_HUNDREDTH = "CASE WHEN id % 100 = 7 THEN {other} ELSE value END"
_QUARANTINE = {"on_malformed": "quarantine"}
_RESCUE = {"rescue_column": "_rescued"}


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to take care of rows that do not fit.

    Attributes:
        value: Expression of the documents, over good ones in `value` with their number in `id`.
        most: How many times the plain stream's processor time it may take.
        aside: Share of the documents that are in the table of dead letters.
    """

    title: str
    options: Mapping[str, Any]
    most: float
    value: str = "value"
    aside: float = 0.0


_WITHOUT_NEWS, _WITH_NEWS = 1.03, 1.15
_NOT_JSON = _EVERY_HUNDREDTH.format(other="encode('not JSON ' || id)")
_ANOTHER_KEY = _EVERY_HUNDREDTH.format(other="encode('{{\"another\":1,' || decode(value)[2:])")
VARIANTS = (
    Variant("nothing new, schema_evolution='add'", {"schema_evolution": "add"}, _WITHOUT_NEWS),
    Variant("nothing malformed, quarantine", _QUARANTINE, _WITHOUT_NEWS),
    Variant("nothing to rescue, rescue_column", _RESCUE, _WITHOUT_NEWS),
    Variant("all meet an expectation", {"expect": {"has_value": ("value IS NOT NULL", "warn")}}, _WITHOUT_NEWS),
    Variant("1 % malformed, quarantine", _QUARANTINE, _WITH_NEWS, _NOT_JSON, aside=0.01),
    Variant("1 % with another key, rescue_column", _RESCUE, _WITH_NEWS, _ANOTHER_KEY),
)
PLAIN = Variant("plain", {}, 1.0)


def measure(folder: Path, say: Callable[[str], None], scale: float = 1.0) -> Result:
    """Every variant in pairs with the plain stream."""
    folder.mkdir()
    bench = _Bench(session(), folder, int(ROWS * scale) // data.FILES * data.FILES)
    for variant in (PLAIN, *VARIANTS):
        bench.run(variant)  # warms up, and makes the documents
    found: dict[str, list[float]] = {variant.title: [] for variant in VARIANTS}
    for number in range(ROUNDS):
        for variant in VARIANTS:
            pair = (PLAIN, variant) if number % 2 else (variant, PLAIN)
            seconds = {one.title: bench.run(one) for one in pair}
            found[variant.title].append(seconds[variant.title] / seconds[PLAIN.title])
            say(f"W11: {variant.title}: {found[variant.title][-1]:.3f} times the processor time")
    bench.spark.stop()
    return report(found)


@dataclass(slots=True)
class _Bench:
    spark: SparkSession
    folder: Path
    rows: int
    _runs: int = field(default=0)

    def run(self, variant: Variant) -> float:
        """Processor seconds of one stream into a new table."""
        self._runs += 1
        place = self.folder / f"run-{self._runs}"
        place.mkdir()
        catalog = {"type": "sql", **catalog_properties(place)}
        columns = arrow_schema(self.spark.createDataFrame([], data.EVENTS_SCHEMA).schema)
        create_table(connect(CATALOG, catalog), TABLE, columns, properties=TABLE_PROPERTIES)
        source = self._documents(variant)
        documents = self.spark.readStream.schema("value BINARY").option("maxFilesPerTrigger", data.FILES // 2)
        how: dict[str, Any] = {"decode": "json", "verbose": False, **variant.options}
        how |= {"catalog": CATALOG, "catalog_properties": catalog}
        with measured() as used:
            writer = lakesink.stream(
                documents.parquet(str(source)), TABLE, sink_id="bench", checkpoint=place / "checkpoint", **how
            )
            writer.trigger(availableNow=True).start().awaitTermination()
        self._check(variant, catalog)
        shutil.rmtree(place)
        return used.cpu_seconds

    def _documents(self, variant: Variant) -> Path:
        name = f"documents-{abs(hash(variant.value))}"
        if not (self.folder / name).exists():
            good = data.documents(data.EVENTS).replace("encode('", "id, encode('", 1)
            query = f"select {variant.value} as value from ({good})"
            data.Source.make(self.folder / name, query, self.rows)
        return self.folder / name

    def _check(self, variant: Variant, catalog: Mapping[str, Any]) -> None:
        opened = connect(CATALOG, dict(catalog))
        rows = opened.load_table(TABLE).scan().count()
        letters = opened.load_table(f"{TABLE}__dead_letters").scan().count() if variant.aside else 0
        if (rows, letters) != (self.rows - letters, round(self.rows * variant.aside)):
            raise WrongRows(f"{variant.title}: {rows} rows and {letters} dead letters of {self.rows} documents")


def report(found: Mapping[str, Sequence[float]]) -> Result:
    """Medians of the pairs, judged."""
    lines, goals = [], []
    for variant in VARIANTS:
        ratios = found[variant.title]
        median = statistics.median(ratios)
        lines.append((variant.title, f"{median:.3f} ({min(ratios):.3f}-{max(ratios):.3f})"))
        goals.append(Goal(f"W11: {variant.title}", variant.most, median, at_least=False))
    heads = ("documents and options", "times the processor time of the plain stream")
    raw = {title: list(ratios) for title, ratios in found.items()}
    return Result("W11", "rows that do not fit, in pairs", heads, tuple(lines), tuple(goals), raw=raw)
