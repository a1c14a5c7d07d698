"""Flows of Spark Declarative Pipelines: what a new checkpoint means there, and what to do.

Spark keeps the checkpoint of a flow in ``<storage>/_checkpoints/<sink>/<flow>/<number>``. A full refresh leaves that
folder and begins the next number, so the flow reads its source again from the beginning.
"""

import re
from collections.abc import Sequence

from lakesink_protocol.errors import Reason
from lakesink_protocol.redact import redact, shown
from lakesink_protocol.refusals.texts import Words
from lakesink_protocol.situation import Situation

_CHECKPOINT = re.compile(r".*/_checkpoints/.+/(?P<flow>[^/]{1,60})/(?P<number>[0-9]{1,9})/?")


def words_of(checkpoint: str) -> Sequence[Words]:
    """Messages of refusals for the query of a checkpoint; none if it is not a flow's."""
    found = _CHECKPOINT.fullmatch(checkpoint)
    if found is None:
        return ()
    flow, folder = _literal(found["flow"]), _literal(redact(checkpoint.rstrip("/")))
    return (_shared(flow, folder) if int(found["number"]) == 0 else _refreshed(flow, folder),)


def _refreshed(flow: str, folder: str) -> Words:
    return Words(
        Reason.NEW_CHECKPOINT,
        f"The full refresh of flow {flow} would add rows a second time: sink {{sink}} has them up to batch {{last}}.",
        f"To undo the refresh, delete the folder {folder}: the flow goes on with the checkpoint of the number before.\n"
        "To rebuild the table, drop it (with the option create-table), or delete the sink's rows and accept batch"
        " {n} as below by the option accept; then run the pipeline again without a refresh.",
        when=_is_first,
    )


def _shared(flow: str, folder: str) -> Words:
    return Words(
        Reason.NEW_CHECKPOINT,
        f"Flow {flow} begins anew, but sink {{sink}} has batches up to {{last}} of another flow or checkpoint.",
        "If another flow of the pipeline has this sink-id, give each flow a sink (dp.create_sink) with a sink-id of"
        " its own; they can write one table.\n"
        "If flow or sink was renamed, or the storage of the pipeline changed, put the old checkpoint into"
        f" {folder}.",
        when=_is_first,
    )


def _is_first(situation: Situation) -> bool:
    return situation.batch.batch_id == 0


def _literal(text: str) -> str:
    """A text for one line of a format string."""
    return shown(text, len(text)).replace("{", "{{").replace("}", "}}")
