"""`lakesink explain`: the page of an error, offline."""

import json

import pytest
from click.testing import CliRunner

from lakesink_protocol.catalogue import DataState, explanations
from lakesink_protocol.errors import WriteError
from lakesink_tools.cli.main import main


def explain(*arguments: str, exit_code: int = 0) -> str:
    result = CliRunner().invoke(main, ["explain", *arguments], catch_exceptions=False)
    assert result.exit_code == exit_code, result.output
    return result.output


@pytest.mark.parametrize("spelled", ["LAKESINK_ROLLED_BACK", "rolled_back", "[LAKESINK_ROLLED_BACK]", "rolled-back"])
def test_a_code_is_explained_however_it_is_spelled(spelled: str) -> None:
    page = explain(spelled)
    assert page.startswith("LAKESINK_ROLLED_BACK: The table was rolled back.")
    assert "Nothing of this batch is in the table" in page
    assert "lakesink rewind CHECKPOINT --to-batch M" in page
    assert "](" not in page


def test_without_a_code_every_code_is_listed_with_what_it_means() -> None:
    _, *lines = explain().partition("\n\n")[0].splitlines()
    assert [line.split()[0] for line in lines] == sorted(explanations())
    [gap] = [line for line in lines if line.startswith("LAKESINK_GAP ")]
    assert gap.endswith("  Batches are missing between ledger and checkpoint.")


def test_a_new_checkpoint_is_explained_for_sources_that_cannot_start_in_the_middle() -> None:
    page = explain("NEW_CHECKPOINT")
    assert "File sources always start at the beginning." in page
    assert 'accept="NewCheckpoint:0@...:commit"' in page


def test_of_an_unknown_code_the_nearest_is_named() -> None:
    said = explain("ROLED_BACK", exit_code=2)
    assert said.startswith("[LAKESINK_CODE_UNKNOWN] There is no error 'ROLED_BACK'.")
    assert "Did you mean LAKESINK_ROLLED_BACK?" in said
    assert "Did you mean" not in explain("qqqqq", exit_code=2)


def test_an_explanation_can_be_had_as_json() -> None:
    document = json.loads(explain("gap", "--output", "json"))
    assert document["code"] == "LAKESINK_GAP"
    assert document["do"] == "Replay from the batch named."
    assert len(json.loads(explain("--output", "json"))["errors"]) == len(explanations())


def test_an_error_that_says_nothing_of_the_data_says_what_the_catalogue_has() -> None:
    error = WriteError("TEXT_INVALID", "Column 'c' contains text that is not UTF-8.", action="Correct it.")
    assert error.data == explanations()["LAKESINK_TEXT_INVALID"].text.data
    assert WriteError("TEXT_INVALID", "It.", action="Do.", data="All of it is in.").data == "All of it is in."
    assert WriteError("OF_ANOTHER_SINK", "It.", action="Do.").data == DataState.UNKNOWN.value


def test_errors_of_kafka_speak_of_the_topic_and_not_of_a_table() -> None:
    for code, page in explanations().items():
        if code.startswith(("LAKESINK_KAFKA_", "LAKESINK_STAGING_")):
            assert page.text.data in (DataState.NOT_SENT.value, DataState.UNCHANGED.value), code
            assert "table" not in page.text.data
