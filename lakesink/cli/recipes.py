"""Recipes for engines, turned into reports. Only reads."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace

from pyiceberg.table import Table

from lakesink.audit.as_of import Question, as_of
from lakesink.cli.output import Report, printable
from lakesink.engines import duckdb, flink, pyiceberg, spark, trino
from lakesink.engines.recipe import Recipe
from lakesink.engines.target import Moment, Target, target_of
from lakesink_catalog.connect.catalog import CatalogConfig
from lakesink_catalog.read.history import history
from lakesink_catalog.tables.tables import load_table, parse_identifier
from lakesink_protocol.identity import MAIN_BRANCH

_RECIPES: Mapping[str, Callable[[Target], Recipe]] = {
    "duckdb": duckdb.recipe,
    "flink": flink.recipe,
    "pyiceberg": pyiceberg.recipe,
    "spark": spark.recipe,
    "trino": trino.recipe,
}
FORMAT_VERSION = 2
_COMMENTS = {"pyiceberg": "#"}


def engines_report(identifier: str, catalog: str | None, engine: str, *, batch: int | None, sink: str | None) -> Report:
    """What an engine is told about a catalog and a table; None for the newest batch, and for the only sink."""
    found = CatalogConfig(catalog).find()
    table = load_table(found.open(create=False), identifier)
    moment = _moment(table, identifier, batch, sink)
    target = target_of(found, table, parse_identifier(identifier), moment)
    recipe = _RECIPES[engine](target)
    version = target.format_version
    if version != FORMAT_VERSION:
        note = f"The table is of format version {version}; this was tried with version {FORMAT_VERSION}."
        recipe = replace(recipe, notes=(*recipe.notes, note))
    return Report(
        document={"table": identifier, "catalog": found.name, **asdict(recipe)},
        title=printable(f"{identifier} in {found.name}, for {recipe.engine}"),
        hints=_lines(recipe, _COMMENTS.get(engine, "--")),
    )


def _moment(table: Table, identifier: str, batch: int | None, sink: str | None) -> Moment | None:
    """The batch that is asked for, else the newest one, else what is there."""
    if batch is None:
        retained = [record for record in history(table, branch=MAIN_BRANCH) if record.in_branch]
        if not retained:
            head = table.metadata.current_snapshot()
            return None if head is None else Moment("the table as it is now", head.snapshot_id)
        batch, sink = retained[-1].batch_id, retained[-1].sink
    answer = as_of(table, identifier, Question(batch_id=batch, sink=sink))
    lasting = [name for name in answer.tags if name not in answer.moving]
    return Moment(f"the table as of batch {batch}", answer.snapshot_id, next(iter(lasting), None))


def _lines(recipe: Recipe, comment: str) -> list[str]:
    """Files and queries stand as they are, to be copied; the words around them are their comments."""
    lines = [printable(f"Needs: {need}.") for need in recipe.needs]
    lines += [printable(f"Note: {note}") for note in recipe.notes]
    for file in recipe.files:
        lines += ["", printable(f"{file.name}: {file.what}"), ""]
        lines += [printable(line) for line in file.text.splitlines()]
    lines += ["", "First queries:", ""]
    end = ";" if comment == "--" else ""
    for query in recipe.queries:
        lines += [printable(f"{comment} {query.what}"), printable(f"{query.text}{end}")]
    return [*lines, "", f"Next: write {recipe.files[0].name}, start the engine with it, and run the queries."]
