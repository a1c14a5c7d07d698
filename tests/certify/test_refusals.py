"""Only a refusal is held against a catalog; an error of its server proves nothing, and Hive 4 is refused by name."""

from pathlib import Path
from typing import Any, ClassVar

import pytest
from click.testing import CliRunner
from pydantic import BaseModel, ValidationError
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    BadRequestError,
    CommitFailedException,
    CommitStateUnknownException,
    ForbiddenError,
    NoSuchTableError,
    RESTError,
    ServerError,
)
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.typedef import Identifier
from requests.exceptions import JSONDecodeError, ReadTimeout

from lakesink.settings.settings import Settings
from lakesink.sinks.iceberg.preflight import check_start
from lakesink_catalog.connect import kinds
from lakesink_catalog.connect.catalog import CatalogConfig
from lakesink_catalog.connect.kinds import Kind
from lakesink_protocol.errors import CatalogError
from lakesink_protocol.identity import SinkKey
from lakesink_tools.checks.bench import ScratchTable, is_refusal
from lakesink_tools.checks.certify.examine import certify
from lakesink_tools.checks.certify.race import Size
from lakesink_tools.checks.certify.verdict import Check, Standing, Verdict
from lakesink_tools.checks.doctor.catalog import check_catalog
from lakesink_tools.cli.main import main
from testkit.builders import ROWS, TABLE
from tests.doctor.test_swap import Held

TApplicationException = type("TApplicationException", (Exception,), {"__module__": "thrift.Thrift"})
"""Thrift's own exception, by its module and name: Thrift comes with `pyiceberg[hive]` only."""
UNKNOWN_CALL = TApplicationException("Invalid method name: 'get_table'")
"""What PyIceberg 0.12 raises for every table of Hive 4."""
FAILED_CALL = TApplicationException("Internal error processing lock")
"""What it raises for every commit to a Hive 3 without the tables of its locks."""
SMALL = Size(writers=2, commits=2, processes=1, seconds=60)


class FailsEveryCommit(SqlCatalog):
    error: ClassVar[Exception] = FAILED_CALL

    def commit_table(self, *_: Any) -> CommitTableResponse:
        raise self.error


class Hive4(SqlCatalog):
    """Makes a table and drops it, and cannot load it, as PyIceberg's client with Hive 4."""

    def load_table(self, identifier: str | Identifier) -> Table:  # noqa: ARG002 - none is loaded
        raise UNKNOWN_CALL

    def create_table(self, *arguments: Any, **options: Any) -> Table:
        table = super().create_table(*arguments, **options)
        return self.load_table(table.name())


@pytest.fixture
def hive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The properties of a Hive catalog, for which PyIceberg's client would need Thrift."""
    monkeypatch.setitem(kinds.KINDS, "hive", Kind(__name__, "Hive4", certified=False))
    for name, value in (found := properties(tmp_path) | {"type": "hive"}).items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__HIVE__{name.upper()}", value)
    return found


def properties(folder: Path) -> dict[str, str]:
    return {"uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/w"}


def unread() -> Exception:
    class Body(BaseModel):
        metadata: int

    try:
        Body.model_validate({})
    except ValidationError as error:
        return error
    raise AssertionError


@pytest.mark.parametrize(
    ("error", "refused"),
    [
        (CommitFailedException("Requirement failed"), True),
        (BadRequestError("400"), True),
        (RESTError("422"), True),
        (NoSuchTableError("404"), True),
        (ValueError("Snapshot with id 1 already exists"), True),
        (FAILED_CALL, False),
        (ForbiddenError("403"), False),
        (ServerError("502"), False),
        (CommitStateUnknownException("500"), False),
        (NotImplementedError("501"), False),
        (ReadTimeout("read timed out"), False),
        (JSONDecodeError("not JSON", "<html>", 0), False),
        (unread(), False),
        (AttributeError("a defect"), False),
        (type("ClientError", (Exception,), {})("an error of a cloud's library"), False),
    ],
)
def test_what_is_no_known_refusal_is_no_answer(error: Exception, refused: bool) -> None:  # noqa: FBT001 - a case
    assert is_refusal(error) is refused


def test_a_server_that_fails_at_every_commit_is_not_called_unsafe(tmp_path: Path) -> None:
    held = Held("hive", properties(tmp_path), kind=FailsEveryCommit)
    held.open()
    certificate = certify(held, SMALL)
    assert certificate.verdict is Verdict.UNDECIDED
    assert {finding.standing for finding in certificate.findings[:-1]} == {Standing.UNDECIDED}, certificate.findings
    assert "Internal error processing lock" in certificate.findings[0].found
    assert "refused a valid commit" not in str(certificate.findings)


def test_a_scratch_table_that_cannot_be_loaded_is_dropped_by_its_name(tmp_path: Path) -> None:
    held = Held("hive", properties(tmp_path), kind=Hive4)
    scratch = ScratchTable(held.open(), "lakesink_certify_")
    with pytest.raises(CatalogError, match=r"Hive 4 needs PyIceberg 0\.13"):
        scratch.create()
    assert scratch.remove() == []
    assert held.open().list_namespaces() == []


def test_a_stream_is_refused_on_hive_4_before_it_starts(hive: dict[str, str]) -> None:
    CatalogConfig("hive", hive | {"type": "sql"}).open()
    found = CatalogConfig("hive").find()
    with pytest.raises(CatalogError, match=r"Hive 4 needs PyIceberg 0\.13") as refused:
        check_start(found, TABLE, SinkKey("events"), Settings(), ROWS, case_sensitive=False)
    assert refused.value.code == "LAKESINK_CATALOG_UNSUPPORTED"


def test_doctor_and_certify_say_it_once(hive: dict[str, str]) -> None:
    CatalogConfig("hive", hive | {"type": "sql"}).open()
    [failed] = [finding for finding in check_catalog("hive").findings if finding.standing.value == "failed"]
    assert "[LAKESINK_CATALOG_UNSUPPORTED]" in failed.found
    assert failed.fix.startswith("Hive 4 needs PyIceberg 0.13")
    result = CliRunner().invoke(main, ["certify", "hive"])
    assert result.exit_code == 2
    assert (result.stderr + result.stdout).count("Hive 4 needs PyIceberg 0.13") == 1
    assert "undecided" not in result.output


@pytest.mark.parametrize("error", [NoSuchTableError("none"), FAILED_CALL])
def test_a_hive_that_answers_otherwise_is_opened(
    hive: dict[str, str], monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(Hive4, "load_table", fail)
    assert CatalogConfig("hive", hive).open().list_namespaces() == []


def test_another_error_of_thrift_is_none_either(tmp_path: Path) -> None:
    FailsEveryCommit("hive", **properties(tmp_path)).close()
    held = Held("hive", properties(tmp_path), kind=FailsEveryCommit)
    [finding] = certify(held, SMALL, checks=[Check.STALE_HEAD]).findings
    assert "LAKESINK_CATALOG_FAILED" in finding.found
    assert "Hive 4" not in finding.found
