"""The pictures of the documents are what the code's tables say, and what the coordinator does."""

import re
from xml.etree import ElementTree as ET

import pytest

from lakesink_catalog.failpoints import FAILPOINTS
from lakesink_protocol.verdict import STREAM_RULES
from proof.guarantees.__main__ import published
from proof.pictures.__main__ import FOLDER
from proof.pictures.calls import STORIES
from proof.pictures.draw import all_pictures, batch, verdicts
from proof.pictures.svg import WIDTH
from servers.jars import ROOT

NAMES = ("batch.svg", "seam.svg", "verdicts.svg", "guarantees.svg")


@pytest.fixture(scope="module")
def drawn() -> dict[str, str]:
    return dict(all_pictures(published()))


@pytest.mark.parametrize("name", NAMES)
def test_a_picture_is_what_the_code_says_now(drawn: dict[str, str], name: str) -> None:
    assert (FOLDER / name).read_text() == drawn[name], "draw it anew: python -m proof.pictures"


@pytest.mark.parametrize("name", NAMES)
def test_a_picture_is_well_formed_and_nothing_sticks_out(drawn: dict[str, str], name: str) -> None:
    root = ET.fromstring(drawn[name])  # noqa: S314 - drawn by ourselves
    boxes = [box for box in root if box.get("x")]
    right = [float(box.get("x", 0)) + float(box.get("width", 0)) for box in boxes]
    assert max(right) <= WIDTH
    assert max(float(box.get("y", 0)) for box in boxes) < float(root.get("height", 0))


def test_the_documents_show_every_picture(drawn: dict[str, str]) -> None:
    shown = re.findall(r"\(\.\./pictures/([a-z]+\.svg)\)", (ROOT / "docs/start/concepts.md").read_text())
    assert sorted(shown) == sorted(drawn) == sorted(path.name for path in FOLDER.iterdir()) == sorted(NAMES)


def test_every_failpoint_and_every_rule_is_in_its_picture() -> None:
    assert [name for name in FAILPOINTS if f">{name}<" not in batch()] == []
    assert len(re.findall(r">\d+\. ", verdicts())) == len(STREAM_RULES)


def test_only_a_batch_that_nobody_prepared_is_written_and_one_that_is_there_is_left_alone() -> None:
    called = {title: calls() for title, calls in STORIES.items()}
    writes = [title for title, calls in called.items() if any(call.startswith("write") for call in calls)]
    assert writes == ["The batch runs", "Its driver died before the record", "A task fails"]
    assert called["Its driver died after the commit"] == ["begin: it is there"]
    assert called["A task fails"][-1].startswith("abort")
    order = [call.split(":")[0] for call in called["The batch runs"]]
    put, commit = order.index("put the prepared record"), order.index("commit")
    assert order.index("pre_commit") < put < commit
