"""What the rows of a batch brought: values that do not fit, late changes, other columns."""

from lakesink_protocol.events.event import INFO, SinkBatchEvent, TableBatchEvent


class RowsBeforeUnread(TableBatchEvent):
    """Deletes have values in the row before that do not fit their columns; the changelog has NULL for these values."""

    line = (
        "lakesink.changelog.unread table=%(table)s batch=%(batch_id)d rows=%(rows)d: values before these deletes do not"
        " fit; the changelog has NULL for them"
    )
    rows: int


class DeletesLate(TableBatchEvent):
    """For the first time in a run, Debezium's deletes had no effect: the stored rows have a higher sequence."""

    line = (
        "lakesink.deletes.late table=%(table)s batch=%(batch_id)d rows=%(rows)d: the stored rows have a higher sequence"
        " and stay; if the events have no sequence before a delete, set REPLICA IDENTITY FULL in PostgreSQL or"
        " binlog_row_image=FULL in MySQL"
    )
    rows: int


class ExpectationsUnmet(TableBatchEvent):
    """Rows of the batch do not meet an expectation that only warns; `unmet` has the counts by its name, in words."""

    line = (
        "lakesink.expectation.unmet table=%(table)s batch=%(batch_id)d: rows that do not meet an expectation were let"
        " in: %(unmet)s"
    )
    unmet: str


class RowsPutAside(TableBatchEvent):
    """Rows of the batch become dead letters; `letters` is the table that gets them."""

    line = (
        "lakesink.rows.put-aside table=%(table)s batch=%(batch_id)d rows=%(rows)d: they become dead letters in"
        " %(letters)s"
    )
    rows: int
    letters: str


class RowsRescued(TableBatchEvent):
    """The rescue column has values of the batch's documents for a reason that no earlier line named."""

    line = (
        "lakesink.decode.rescued table=%(table)s batch=%(batch_id)d: the rescue column keeps what other columns do not"
        " hold: %(reasons)s"
    )
    reasons: str


class KeysUnknown(TableBatchEvent):
    """Documents contain keys that are no columns."""

    line = (
        "lakesink.decode.unknown-keys table=%(table)s batch=%(batch_id)d: keys without a column are left out: %(names)s"
    )
    names: str


class SortOrderUnkept(TableBatchEvent):
    """The table's sort order cannot be kept."""

    line = (
        "lakesink.sort_order.unkept table=%(table)s batch=%(batch_id)d: lakesink cannot sort by %(field)s, so files"
        " state no order"
    )
    field: str


class ColumnsMissing(SinkBatchEvent):
    """The rows lack columns of the table."""

    line = (
        "lakesink.columns.missing table=%(table)s sink=%(sink)s batch=%(batch_id)d: the rows lack these columns of the"
        " table, which become NULL: %(names)s"
    )
    names: str


class ColumnsIgnored(SinkBatchEvent):
    """The rows have columns that the table lacks, and the option `schema_evolution` leaves them out."""

    line = (
        "lakesink.columns.ignored table=%(table)s sink=%(sink)s batch=%(batch_id)d: the table lacks these columns of"
        " the rows, which are left out: %(names)s"
    )
    names: str


class SchemaEvolved(TableBatchEvent):
    """The batch's commit has changed the table's schema; `change` says how, in words."""

    level = INFO
    line = "lakesink.schema.evolved table=%(table)s batch=%(batch_id)d: %(change)s"
    change: str


class SchemaIdTaken(TableBatchEvent):
    """The schema id of the batch's snapshot names another schema than that of its files."""

    line = (
        "lakesink.schema.id-taken table=%(table)s batch=%(batch_id)d snapshot=%(snapshot_id)d: another writer changed"
        " the schema at the same moment; readers of this snapshot may see other columns; its files are right"
    )
    snapshot_id: int
