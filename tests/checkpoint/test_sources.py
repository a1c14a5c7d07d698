"""The guarantee of a source."""

import pytest

from lakesink.checkpoint.query_facts import Replay, Source, gives_uncommitted, guarantee, is_lenient, replay_of


@pytest.mark.parametrize(
    ("name", "fail_on_data_loss", "expected"),
    [
        ("kafka", None, Replay.YES),
        ("kafka", "true", Replay.YES),
        ("kafka", " False ", Replay.MAY_LOSE),
        ("FileSource[/in]", None, Replay.YES),
        ("rate", None, Replay.YES),
        ("rate-micro-batch", None, Replay.YES),
        ("socket", None, Replay.NO),
        ("kinesis", None, Replay.UNKNOWN),
    ],
)
def test_each_source_has_its_cell_of_the_guarantee(name: str, fail_on_data_loss: str | None, expected: Replay) -> None:
    assert replay_of(name, fail_on_data_loss) is expected


@pytest.mark.parametrize(
    ("name", "isolation_level", "expected"),
    [
        ("kafka", None, True),
        ("kafka", "read_uncommitted", True),
        ("kafka", " Read_Committed ", False),
        ("rate", None, False),
    ],
)
def test_a_kafka_source_gives_aborted_records_unless_told_otherwise(
    name: str, isolation_level: str | None, *, expected: bool
) -> None:
    assert gives_uncommitted(name, isolation_level) is expected


@pytest.mark.parametrize(
    ("file_format", "mode", "keeps_corrupt", "expected"),
    [
        ("json", None, False, True),
        ("CSV", "dropMalformed", False, True),
        ("json", " FailFast ", False, False),
        ("json", "permissive", True, False),
        ("text", None, False, False),
        ("parquet", None, False, False),
    ],
)
def test_a_format_of_texts_is_lenient_unless_it_stops_or_keeps_what_it_cannot_read(
    file_format: str, mode: str | None, *, keeps_corrupt: bool, expected: bool
) -> None:
    assert is_lenient(file_format, mode, keeps_corrupt=keeps_corrupt) is expected


@pytest.mark.parametrize(
    ("replays", "expected"),
    [
        ([Replay.YES, Replay.YES], Replay.YES),
        ([Replay.YES, Replay.NO, Replay.MAY_LOSE], Replay.NO),
        ([Replay.UNKNOWN, Replay.MAY_LOSE], Replay.UNKNOWN),
        ([], Replay.UNKNOWN),
    ],
)
def test_the_weakest_source_decides(replays: list[Replay], expected: Replay) -> None:
    assert guarantee([Source("s", replay) for replay in replays]) is expected
