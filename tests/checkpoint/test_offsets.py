import json
from collections.abc import Callable

import pytest

from lakesink.checkpoint import offsets
from lakesink.checkpoint.offsets import (
    log_offset,
    parse_initial_offset,
    parse_offset_log,
    parse_query_id,
    pass_by,
    source_log_lines,
    source_log_tail,
)
from lakesink_protocol.errors import QueryError


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ('{"logOffset":3}', ({"logOffset": 3},)),
        ('{"logOffset":3}\n-', ({"logOffset": 3}, None)),
        ('-\n{"t":{"0":5,"1":9007199254740993}}', (None, {"t": {"0": 5, "1": 9007199254740993}})),
        ("17", (17,)),
        ("position 17 of 20", ("position 17 of 20",)),
        ('{"a":1}\n', ({"a": 1},)),
        ('{"name":"a\u2028b"}', ({"name": "a\u2028b"},)),
    ],
)
def test_offset_log_has_one_parsed_value_a_source(lines: str, expected: tuple[object, ...]) -> None:
    assert parse_offset_log(f'v1\n{{"batchWatermarkMs":0}}\n{lines}').by_source == list(expected)


NAMED = '{"conf":{"spark.sql.streaming.queryEvolution.enableSourceEvolution":"true"}}'


@pytest.mark.parametrize(
    ("text", "by_source"),
    [
        ("v2\n{}\n1:6\n0:5", [5, 6]),
        ("v2\n{}\n10:7\n9:6", [*[None] * 9, 6, 7]),
        ("v2\n{}\n0:5\n1:-", [5, None]),
        ('v2\n{}\n0:{"t":{"0":5}}', [{"t": {"0": 5}}]),
        (f"v2\n{NAMED}\nb:6\na:5", {"a": 5, "b": 6}),
        (f"v2\n{NAMED}\n1:6\n0:5", {"0": 5, "1": 6}),
        (f"v2\n{NAMED}\na:5", [5]),
        (f"v1\n{NAMED}\n5", [5]),
        ("v2\n{}", []),
    ],
)
def test_offsets_are_known_by_source_whatever_the_version_and_the_order(text: str, by_source: object) -> None:
    assert parse_offset_log(text).by_source == by_source


def test_names_that_the_log_does_not_keep_are_refused_where_there_are_several() -> None:
    with pytest.raises(QueryError, match="stores their offsets by position") as caught:
        parse_offset_log(f"v1\n{NAMED}\n5\n6")
    assert caught.value.code == "LAKESINK_SOURCES_BY_POSITION"
    assert len(str(caught.value).partition("\n")[0]) < 200


def test_the_metadata_line_of_an_offset_log_does_not_count() -> None:
    assert parse_offset_log('v1\n{"batchTimestampMs":1}\n5') == parse_offset_log('v1\n{"batchTimestampMs":2}\n5')


def test_offsets_spelled_otherwise_are_the_same() -> None:
    assert parse_offset_log('v1\n{}\n{"t":{"0":5,"1":6}}') == parse_offset_log(
        'v1\r\n{}\r\n{"t": {"1": 6, "0": 5}}\r\n'
    )


@pytest.mark.parametrize("text", ["v3\n{}\n0:5", "", '{"logOffset":3}', "v10\n{}\n5"])
def test_a_version_never_seen_is_refused_by_name(text: str) -> None:
    with pytest.raises(QueryError) as caught:
        parse_offset_log(text)
    assert caught.value.code == "LAKESINK_CHECKPOINT_VERSION"


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (parse_offset_log, "v1"),
        (parse_offset_log, "v2"),
        (parse_offset_log, "v2\n{}\n5"),
        (parse_offset_log, "v2\n{}\na:5\na:6"),
        (parse_query_id, "{}"),
        (parse_query_id, ""),
        (parse_query_id, "[]"),
        (lambda text: source_log_lines(text, 0, 1), "v1\nnot an entry"),
        (lambda text: source_log_lines(text, 0, 1), 'v1\n{"path":"a"}'),
    ],
)
def test_a_damaged_checkpoint_is_refused_by_name(parse: Callable[[str], object], text: str) -> None:
    with pytest.raises(QueryError) as caught:
        parse(text)
    assert caught.value.code == "LAKESINK_CHECKPOINT_UNREADABLE"
    assert len(str(caught.value).partition("\n")[0]) < 200


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b'\0v1\n{"t":{"0":5,"1":0}}', {"t": {"0": 5, "1": 0}}),
        (b'v1\n{"path":"file:///in/a.json","timestamp":1,"batchId":0}', None),
        (b"v1\n1795237648218", None),
        (b"\0v1\n1795237648218", None),
        (b"\0v1\n{}", None),
        (b'\0v1\n{"t":', None),
        (b'\0v2\n{"t":{"0":5}}', None),
        (b"", None),
    ],
)
def test_only_a_kafka_like_source_tells_its_own_start(content: bytes, expected: object) -> None:
    assert parse_initial_offset(content) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"logOffset": 3}, 3),
        ({"logOffset": -1}, -1),
        (None, None),
        (3, None),
        ({"logOffset": 3, "x": 1}, None),
        ("3", None),
    ],
)
def test_only_a_file_source_has_a_log_offset(value: object, expected: int | None) -> None:
    assert log_offset(value) == expected


def _entry(position: int, name: str = "f") -> str:
    return json.dumps({"path": f"file:///in/{name}-{position}.json", "timestamp": 1, "batchId": position})


def test_lines_of_a_batch_are_those_after_the_last_one_and_up_to_its_end() -> None:
    text = "\n".join(["v1", *(_entry(position) for position in range(6))])
    assert source_log_lines(text, 2, 4) == [_entry(3), _entry(4)]
    assert source_log_lines(text, -1, 0) == [_entry(0)]
    assert source_log_lines("v1", -1, 5) == []


@pytest.mark.parametrize("chunk", [1, 7, 64, 100_000])
def test_the_tail_of_a_compacted_log_holds_the_same_lines_as_the_whole(
    chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offsets, "TAIL_BYTES", chunk)
    text = "\n".join(["v1", *(_entry(position, name) for position in range(10) for name in ("ä", "😀", "z"))])
    content = text.encode()
    for after, upto in [(8, 9), (-1, 9), (3, 5), (9, 9)]:
        tail = source_log_tail(lambda start, length: content[start : start + length], len(content), after, upto)
        assert tail == source_log_lines(text, after, upto)


def test_a_large_compacted_log_is_not_read_whole() -> None:
    content = "\n".join(["v1", *(_entry(position, "x" * 200) for position in range(20_000))]).encode()
    read = []

    def read_range(start: int, length: int) -> bytes:
        read.append(length)
        return content[start : start + length]

    assert source_log_tail(read_range, len(content), 19_998, 19_999) == [_entry(19_999, "x" * 200)]
    assert sum(read) < len(content) / 10


def of_table(sequence: object, uuid: str = "u") -> dict[str, object]:
    return {"lakesink": 1, "uuid": uuid, "sequence": sequence}


@pytest.mark.parametrize(
    ("later", "earlier", "passes"),
    [
        ([{"t": {"0": 6}}], [{"t": {"0": 5}}], True),
        ([{"t": {"0": 5}}], [{"t": {"0": 5}}], False),
        ([{"t": {"0": 1, "1": 6}}], [{"t": {"0": 5, "1": 5}}], True),
        ([{"t": {"0": 5, "1": 6}}], [{"t": {"0": 5}}], False),  # a partition that was added
        ([{"t": {"0": 6}}], [{"s": {"0": 5}}], False),
        ([None, {"t": {"0": 6}}], [{"t": {"0": 5}}, None], False),
        ({"a": {"t": {"0": 5}}, "b": {"t": {"0": 6}}}, {"a": {"t": {"0": 5}}, "b": {"t": {"0": 5}}}, True),
        ([of_table(7)], [of_table(6)], True),
        ([of_table(6)], [of_table(7)], False),
        ([of_table(7)], [of_table(6, "another")], False),
        ([of_table("7")], [of_table(6)], False),
        ([{"logOffset": 7}], [{"logOffset": 6}], False),
        ([7], [6], False),
        ("7", "6", False),
    ],
)
def test_offsets_pass_others_if_one_that_only_grows_is_greater(later: object, earlier: object, *, passes: bool) -> None:
    assert pass_by(json.dumps(later), json.dumps(earlier)) is passes
    assert not pass_by(json.dumps(later), "")
    assert not pass_by("[" * 100_000, json.dumps(earlier))
