"""The command ``engines``: configuration and first queries for another engine, ready to paste. Only reads."""

from contextlib import suppress
from dataclasses import asdict, replace
from importlib import metadata

from pyiceberg.table import Table

from lakesink_catalog.connect.catalog import CatalogConfig
from lakesink_catalog.read.past import retained
from lakesink_catalog.tables.tables import load_table, parse_identifier
from lakesink_protocol.identity import MAIN_BRANCH
from lakesink_tools.cli.output import Report, invalid
from lakesink_tools.engines import duckdb, flink, pyiceberg, spark, trino
from lakesink_tools.engines.recipe import Moment, Recipe
from lakesink_tools.engines.recipe_input import target_of
from lakesink_tools.engines.spark_runtime import WITHOUT_RUNTIME, lacks_runtime
from lakesink_tools.past.as_of import Question, as_of

_RECIPES = {
    "trino": trino.recipe,
    "spark": spark.recipe,
    "duckdb": duckdb.recipe,
    "flink": flink.recipe,
    "pyiceberg": pyiceberg.recipe,
}
FORMAT_VERSION = 2


def engines(*, table: str, catalog: str | None, engine: str, batch: int | None, sink: str | None) -> Report:
    """Exit code 2: there is no such table or batch, or no recipe for it."""
    if sink is not None and batch is None:
        raise invalid("--sink goes with --batch.", "Give --batch too.")
    found = CatalogConfig(catalog).find()
    opened = load_table(found.open(create=False), table)
    target = target_of(found, opened, parse_identifier(table), _moment(opened, table, batch, sink))
    recipe = _RECIPES[engine](target)
    notes = list(recipe.notes)
    if (version := target.format_version) != FORMAT_VERSION:
        notes.append(f"The table is of format version {version}; this was tried with version {FORMAT_VERSION}.")
    if engine == "spark":
        with suppress(metadata.PackageNotFoundError):
            if lacking := lacks_runtime(metadata.version("pyspark")):
                notes.append(f"{lacking} {WITHOUT_RUNTIME}")
    recipe = replace(recipe, notes=tuple(notes))
    return Report(
        document={"table": table, "catalog": found.name, **asdict(recipe)},
        title=f"{table} in {found.name}, for {recipe.engine}",
        hints=_lines(recipe, "#" if engine == "pyiceberg" else "--"),
    )


def _moment(table: Table, identifier: str, batch: int | None, sink: str | None) -> Moment | None:
    """The batch that is asked for, else the newest one, else what is there."""
    if batch is None:
        batches = [one for one in retained(table).batches(branch=MAIN_BRANCH) if one.in_branch]
        if not batches:
            head = table.metadata.current_snapshot()
            return None if head is None else Moment("the table as it is now", head.snapshot_id)
        batch, sink = batches[-1].batch_id, batches[-1].application
    answer = as_of(table, identifier, Question(batch_id=batch, sink=sink))
    lasting = [name for name in answer.tags if name not in answer.moving]
    return Moment(f"the table as of batch {batch}", answer.commit.snapshot_id, next(iter(lasting), None))


def _lines(recipe: Recipe, comment: str) -> list[str]:
    """Files and queries stand as they are, to be copied; the words around them are their comments."""
    lines = [f"Needs: {need}." for need in recipe.needs]
    lines += [f"Note: {note}" for note in recipe.notes]
    for file in recipe.files:
        lines += ["", f"{file.name}: {file.what}", "", *file.text.splitlines()]
    lines += ["", "First queries:", ""]
    end = ";" if comment == "--" else ""
    for query in recipe.queries:
        lines += [f"{comment} {query.what}", f"{query.text}{end}"]
    return [*lines, "", f"Next: write {recipe.files[0].name}, start the engine with it, and run the queries."]
