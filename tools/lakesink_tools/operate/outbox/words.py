"""The errors of reading a table and of Kafka in the words of an outbox, which has no checkpoint and no driver. Pure."""

import re
from dataclasses import dataclass

from lakesink_protocol.catalogue import PREFIX
from lakesink_protocol.errors import BatchRefused, LakesinkError

TOPIC = (
    "The table is unchanged. The topic has the batches up to the one in the ledger topic, and nothing of later ones."
)
_NUMBERED = re.compile(r"batch \d+")
"""In errors of the sink, which counts the batches of the outbox."""
_SKIP = "To go on without the batch, start an outbox with a new --id and --starting-batch {next}."
_LARGER = "Raise max.message.bytes of the topic, and message.max.bytes in the file of --config, and start again."
_STAGING = "Give the temporary folder, or that of --staging, permission and space, and start again."
_ACTIONS: dict[str, tuple[str, ...]] = {
    "COMMIT_UNRESOLVED": (
        (
            "Make the Kafka cluster reachable and start the outbox again. It ends the open transaction, reads the"
            " ledger topic, and goes on at the batch after the newest one there."
        ),
    ),
    "KAFKA_NOT_PERMITTED": (
        (
            "Correct the credentials, or grant: Write, Describe and DescribeConfigs on the topic; Create, Read, Write,"
            " Describe and DescribeConfigs on topic lakesink-ledger-{name}; Write and Describe on the transactional id"
            " lakesink-{name}."
        ),
    ),
    "KAFKA_RECORD_REFUSED": (_LARGER, _SKIP),
    "KAFKA_RECORD_TOO_LARGE": (_LARGER, _SKIP),
    "LOSSY_VALUE": (_SKIP,),
    "OPTION_INVALID": ("Name a batch that `lakesink log` shows, or leave --starting-batch out.",),
    "READ_BATCH_GONE": (
        (
            "To begin with a batch that is there, start an outbox with --starting-batch {next}, and with a new --id if"
            " this one has produced batches. The topic then lacks what the earlier batches did."
        ),
    ),
    "READ_BATCH_CHANGED": (
        "Roll the table back to a version that has the batch.",
        "If the table is right, delete the topic, create it again, and start an outbox with a new --id.",
    ),
    "READ_UNVERIFIABLE": (
        "Compare the topic with the table. Then start an outbox with a new --id and --starting-batch {next}.",
    ),
    "READ_ROWS_REMOVED": (
        (
            "Send tombstones for removed rows, if need be. Then start an outbox with a new --id and --starting-batch"
            " {next}, the first batch after that snapshot; `lakesink log` shows the batches."
        ),
    ),
    "SINK_AMBIGUOUS": ("Name one with --sink; each outbox produces the batches of one.",),
    "STAGING_FAILED": (_STAGING,),
    "STORAGE_WRITE": (_STAGING,),
    "TABLE_REPLACED": (
        "If the table was dropped by mistake, restore it.",
        "To produce the new table, create a new topic, and start an outbox with a new --id.",
    ),
}
_WORDS = {"The option starting-batch": "The option --starting-batch", "the query has read": "the outbox has produced"}


@dataclass(frozen=True, slots=True)
class Words:
    """Says errors of the outbox of this name.

    Attributes:
        batch_id: The batch that could not be produced, or that before a replay; None if it is unknown.
        title: Of the batch or replay.
    """

    name: str
    batch_id: int | None = None
    title: str = "a batch"

    def of(self, error: LakesinkError) -> LakesinkError:
        """The same error in these words; the error itself if its own are right."""
        code = error.code.removeprefix(PREFIX)
        of_kafka, unknown = code.startswith("KAFKA_"), code == "COMMIT_UNRESOLVED"
        if isinstance(error, BatchRefused) or not (of_kafka or code in _ACTIONS):
            return error
        following = "N" if self.batch_id is None else str(self.batch_id + 1)
        ways = [way.format(name=self.name, next=following) for way in _ACTIONS.get(code, ())]
        what = error.what
        for theirs, ours in _WORDS.items():
            what = what.replace(theirs, ours)
        if of_kafka or unknown:
            what = _NUMBERED.sub(self.title, what).replace(" of sink ", " of outbox ")
        data = TOPIC if of_kafka or code == "LOSSY_VALUE" else error.data.removeprefix("The batch is prepared. ")
        action = ways or error.choices or error.action.replace("the driver", "this machine")
        return type(error)(code, what, data=data, action=action)
