"""The command ``dead-letters``: the rows that a stream put aside and why; ``--replay`` appends them repaired."""

import os
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import lakesink
from lakesink.rows.letters import SUFFIX
from lakesink.sinks.iceberg.side.begun_replays import lost_letters, replays_back
from lakesink.sinks.iceberg.side.pending import OfTable, check_letter_table, count_letters
from lakesink.sinks.iceberg.side.replays import AllAssignments, load_assignments
from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.tables.tables import find_table, load_table
from lakesink_catalog.words import as_arguments, counted, moment, number
from lakesink_protocol.errors import CatalogError
from lakesink_tools.cli.output import NOT_WELL, OK, Report, invalid, progress
from lakesink_tools.cli.rows import documents_of
from lakesink_tools.past.dead_letters import LetterCounts, Wanted, count_by_reason, newest

if TYPE_CHECKING:
    from lakesink.sinks.iceberg.side.replays import Replayed


def replay_from(
    query: Path, table: str, letters: str, catalog: str | None, branch: str, of_documents: Mapping[str, str]
) -> Report:
    """Exit code 1: letters are pending that the query does not return."""
    try:
        text = query.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise invalid(f"The query in {query} cannot be read: {type(error).__name__}.", "Name a file of SQL.") from None
    with progress() as told:
        told(f"{letters}: repairing letters")
        options = {"catalog": catalog, "branch": branch, "dead_letter_table": letters, **of_documents}
        done = _replayed(text, table, options)
    arguments = as_arguments(table, catalog)
    return Report(
        document={"table": table, "letters_table": letters, **asdict(done)},
        title=f"Replayed {counted(done.letters, 'letter')} of {letters} into {table}; {number(done.pending)} pending.",
        hints=[f"Next: lakesink {'dead-letters' if done.pending else 'audit'} {arguments}"],
        exit_code=NOT_WELL if done.pending else OK,
    )


def _replayed(query: str, table: str, options: Mapping[str, Any]) -> "Replayed":
    replay = lakesink.replay_dead_letters  # without PySpark, this raises an error that says so
    from lakesink_tools.demo.place import check_java
    from lakesink_tools.demo.session import quiet_session

    check_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with TemporaryDirectory(prefix="lakesink-replay-") as folder:
        session = quiet_session("lakesink-replay", Path(folder), {"spark.sql.session.timeZone": "UTC"})
        try:
            return replay(session, table, query, **options, verbose=False)
        finally:
            session.stop()


_COLUMNS = ("sink", "batch>", "found (UTC)", "reason", "column", "detail", "place", "payload")


@dataclass(frozen=True, slots=True)
class Begun:
    """What is to be done with a replay that the table lacks; `stops` if no other one can be begun before."""

    told: str = ""
    stops: bool = False


def dead_letters(  # noqa: PLR0913 - one for each option of the command
    table: str,
    catalog: str | None,
    letters: str | None,
    *,
    sink: str | None,
    batch: int | None,
    reason: str | None,
    limit: int,
    branch: str,
    replay: Path | None,
    decode: str | None,
    schema_registry: str | None,
    binary_encoding: str | None,
    rescue_column: str | None,
    more: Sequence[str],
) -> Report:
    """Exit code 1: there are dead letters that were not replayed."""
    if letters is None and table.endswith(SUFFIX):
        table = table.removesuffix(SUFFIX)
    name = letters or f"{table}{SUFFIX}"
    wanted = Wanted(sink, batch, reason)
    given = {
        "decode": decode,
        "schema_registry": schema_registry,
        "binary_encoding": binary_encoding,
        "rescue_column": rescue_column,
    }
    options = {option: value for option, value in given.items() if value is not None}
    for one in more:
        option, equals, value = one.partition("=")
        if not equals:
            raise invalid(f"--option {one} has no value.", "Write --option NAME=VALUE.")
        options[option.strip().replace("-", "_")] = value.strip()
    if replay is None:
        if options:
            raise invalid(f"--{next(iter(options)).replace('_', '-')} goes with --replay.", "Give --replay too.")
        return _shown(table, name, catalog, branch, limit, wanted)
    if wanted != Wanted():
        raise invalid("The options --sink, --batch and --reason do not limit a replay.", "Use WHERE in the query.")
    return replay_from(replay, table, name, catalog, branch, options)


def _shown(table: str, name: str, catalog: str | None, branch: str, limit: int, wanted: Wanted) -> Report:
    found = connect(catalog, create=False)
    # The table of the letters may have been dropped, so that they are all that is left.
    of, letters = find_table(found, table), find_table(found, name)
    if letters is None and of is not None:
        raise CatalogError.of(
            "TABLE_MISSING.letters",
            data="This command only reads; nothing was changed.",
            name=name,
            table=table,
            how="name that table: --letters NAME",
        )
    opened = letters or load_table(found, name)
    check_letter_table(opened)
    pending, begun = Counter[bool](), Begun()
    if of is not None:
        assignments, of_table = load_assignments(found, of, opened, name, branch), OfTable(of, opened, branch)
        wanted = replace(wanted, of=(str(of.metadata.table_uuid), branch), is_replayed=assignments.is_replayed)
        pending, begun = _pending(of_table, wanted), _begun(of_table, assignments)
    counts, shown = count_by_reason(opened, wanted), newest(opened, wanted, limit)
    replayed = f", {number(counts.replayed)} replayed" if counts.replayed else ""
    return Report(
        document={
            "table": name,
            "catalog": opened.catalog.name,
            "letters": counts.letters,
            "replayed": counts.replayed,
            "of_others": counts.of_others,
            "reasons": [asdict(one) for one in counts.reasons],
            "newest": documents_of(shown),
        },
        title=f"{name} in {opened.catalog.name}: {counted(counts.letters, 'dead letter')}{replayed}",
        columns=_COLUMNS,
        rows=[_row(one) for one in shown],
        hints=_hints(as_arguments(table, catalog), counts, pending, begun, hidden=counts.letters - len(shown)),
        exit_code=NOT_WELL if counts.letters else OK,
    )


def _pending(of: OfTable, wanted: Wanted) -> Counter[bool]:
    """The number of all letters of the table that no replay has: of those whose batch it has, and of the others."""
    found = Counter[bool]()

    def count(letter: str, sink: str, batch_id: int) -> bool:
        if not wanted.is_replayed(letter):
            found[of.is_complete(letter, sink, batch_id)] += 1
        return False

    count_letters(of, count)
    return found


def _begun(of: OfTable, assignments: AllAssignments) -> Begun:
    if not assignments.unfinished:
        return Begun()
    back = "".join(map(str, replays_back(of.letters.catalog, of.table, of.letters, of.branch) or ()))
    told, stops = [], False
    for known, replay in assignments.unfinished:
        ids = known.letters_of(replay)
        lost = lost_letters(of.letters, ids)
        begun = f"Replay {replay} was begun and is not in the table"
        if lost:
            name = ".".join(of.letters.name())
            told.append(f"Replay {replay} cannot be completed: {name} lacks {lost:,} of its letters. {back}".strip())
            stops = True
        elif count_letters(of, lambda letter, *batch, ids=ids: letter in ids and not of.is_complete(letter, *batch)):
            never = f" If they never come: {back}" if back else ""
            told.append(f"{begun}: it waits for batches that the table lacks.{never}")
        else:
            told.append(f"{begun}: run it again as it was.")
    return Begun(" ".join(told), stops)


def _row(letter: dict[str, Any]) -> list[str]:
    payload = letter["payload"]
    of_kafka = f"{letter['topic']} {letter['partition']}/{letter['offset']}"
    return [
        str(letter["sink"]),
        number(letter["batch_id"]),
        moment(letter["found_at"]),
        str(letter["reason"]),
        letter["column_name"] or "",
        letter["detail"] or "",
        str(letter["source"] or "") if letter["topic"] is None else of_kafka,
        payload if payload is not None else f"{len(letter['payload_bytes'] or b''):,} bytes",
    ]


def _hints(arguments: str, counts: LetterCounts, pending: Counter[bool], begun: Begun, *, hidden: int) -> list[str]:
    told = [
        f"{one.sink}: {counted(one.letters, 'letter')} with {one.reason}{f' ({one.column})' if one.column else ''}."
        for one in counts.reasons
        if one.letters
    ]
    if pending[False]:
        waiting = counted(pending[False], "letter")
        told.append(
            f"No replay takes {waiting}: the table does not have the batch, or has it without these (lakesink audit)."
        )
    if hidden:
        told.append(f"Not shown: {counted(hidden, 'older letter')}; --limit shows more.")
    if counts.of_others:
        told.append(f"Not counted: {counted(counts.of_others, 'letter')} of other tables or branches.")
    if begun.told:
        told.append(begun.told)
    if counts.letters:
        why = f"Next: lakesink explain {counts.reasons[0].reason}"
        then = f"Then: lakesink dead-letters {arguments} --replay FIX.sql"
        return [*told, why, *([then] if pending[True] and not begun.stops else [])]
    done = "Every letter was replayed." if counts.replayed else "Nothing was put aside."
    return [*told, f"{done} Next: lakesink {'audit' if counts.replayed else 'quality'} {arguments}"]
