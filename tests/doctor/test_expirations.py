"""What ends by itself is told before it ends a batch: prepared files, lent credentials, rules of a bucket."""

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from lakesink_catalog.connect.catalog import connect
from lakesink_tools.checks.doctor.expirations import (
    check_expirations,
    check_request_keys,
    lent_credentials,
    object_rules,
)
from lakesink_tools.checks.doctor.finding import Finding, Standing
from testkit.builders import START_MS
from testkit.http_servers import rest_server, serving
from tests.faults.test_prepared_records import Crashed

HOUR_MS = 3_600_000


def prepared(crashed: Crashed, hours: float) -> Finding:
    """What is said of the batch that was prepared, so many hours later."""
    [finding] = check_expirations(crashed.lake.table(), int(START_MS + hours * HOUR_MS))
    return finding


@pytest.fixture
def crashed(tmp_path: Path) -> Crashed:
    return Crashed(tmp_path)


def test_a_batch_that_waits_is_told_with_the_time_that_its_driver_has(crashed: Crashed) -> None:
    finding = prepared(crashed, 5)
    assert (finding.check, finding.standing) == ("prepared", Standing.OK)
    assert finding.found.startswith("batch 1 of events was prepared 4 hours ago and is not committed")
    assert finding.found.endswith("a driver that starts within 15 hours commits it")


@pytest.mark.parametrize("hours", [21, -2])
def test_one_that_waits_too_long_or_comes_from_the_future_is_to_be_written_again(crashed: Crashed, hours: int) -> None:
    finding = prepared(crashed, hours)
    assert finding.standing is Standing.WARNING
    assert "so the next driver writes it again" in finding.found
    assert "while the source still has" in finding.fix


def test_one_whose_files_were_taken_is_told_whatever_its_age(crashed: Crashed) -> None:
    crashed.data_file.unlink()
    finding = prepared(crashed, 1)
    assert finding.standing is Standing.WARNING
    assert "1 file of 1 missing" in finding.found


def test_nothing_waits_once_the_driver_came_back(crashed: Crashed) -> None:
    crashed.stream.run(1)
    finding = prepared(crashed, 1)
    assert (finding.standing, finding.found) == (Standing.OK, "no prepared batch waits for a driver")


@pytest.mark.parametrize(
    ("name", "minutes", "standing"),
    [
        ("s3.session-token-expires-at-ms", 60, Standing.OK),
        ("s3.session-token-expires-at-ms", 5, Standing.WARNING),
        ("gcs.oauth2.token-expires-at", -5, Standing.WARNING),
        ("adls.sas-token-expires-at-ms.lake.dfs.core.windows.net", 60, Standing.OK),
    ],
)
def test_lent_credentials_must_outlast_a_batch(name: str, minutes: int, standing: Standing) -> None:
    ends = START_MS + minutes * 60_000
    [finding] = lent_credentials({name: str(ends), "s3.session-token": "c4n4ry"}, START_MS)
    assert finding.standing is standing
    assert "c4n4ry" not in finding.found + finding.fix
    assert not list(lent_credentials({"s3.session-token": "c4n4ry"}, START_MS))


def rule(expiration: str = "<Days>30</Days>", chosen: str = "<Filter/>", status: str = "Enabled") -> str:
    return f"<Rule><ID>old</ID><Status>{status}</Status>{chosen}<Expiration>{expiration}</Expiration></Rule>"


UPLOADS = (
    "<AbortIncompleteMultipartUpload><DaysAfterInitiation>7</DaysAfterInitiation></AbortIncompleteMultipartUpload>"
)
RULES = {
    "of the whole bucket": (rule(), True),
    "of the warehouse": (rule(chosen="<Filter><Prefix>warehouse/</Prefix></Filter>"), True),
    "of the table's data": (rule(chosen="<Prefix>warehouse/demo/events/data</Prefix>"), True),
    "of large objects": (rule(chosen="<Filter><And><Prefix>warehouse/demo</Prefix></And></Filter>"), True),
    "on a day": (rule("<Date>2030-01-01T00:00:00Z</Date>"), True),
    "of logs": (rule(chosen="<Filter><Prefix>logs/</Prefix></Filter>"), False),
    "of another table": (rule(chosen="<Filter><Prefix>warehouse/demo/events_of_others/</Prefix></Filter>"), False),
    "switched off": (rule(status="Disabled"), False),
    "of what was deleted": (rule("<ExpiredObjectDeleteMarker>true</ExpiredObjectDeleteMarker>"), False),
    "of uploads": (f"<Rule><ID>up</ID><Status>Enabled</Status><Filter/>{UPLOADS}</Rule>", False),
}


@contextmanager
def bucket(status: int, body: str) -> Iterator[dict[str, str]]:
    """Storage that answers every question with this; yields the properties that lead to it."""

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_: object) -> None:
            """Keep still."""

    with serving(Answers) as port:
        keys = {"s3.access-key-id": "key", "s3.secret-access-key": "c4n4ry", "s3.region": "us-east-1"}
        yield {"s3.endpoint": f"http://127.0.0.1:{port}", **keys}


@pytest.mark.parametrize("name", RULES)
def test_a_rule_that_removes_objects_of_the_table_by_age_fails(name: str) -> None:
    text, removes = RULES[name]
    with bucket(200, f"<LifecycleConfiguration>{text}</LifecycleConfiguration>") as properties:
        [finding] = object_rules("s3://lake/warehouse/demo/events", properties)
    assert finding.standing is (Standing.FAILED if removes else Standing.OK)
    assert finding.found.endswith("by their age: old") == removes


@pytest.mark.parametrize(
    ("status", "code", "standing"),
    [(404, "NoSuchLifecycleConfiguration", Standing.OK), (403, "AccessDenied", Standing.SKIPPED)],
)
def test_a_bucket_without_rules_is_well_and_one_that_may_not_be_asked_is_skipped(
    status: int, code: str, standing: Standing
) -> None:
    with bucket(status, f"<Error><Code>{code}</Code><Message>see c4n4ry</Message></Error>") as properties:
        [finding] = object_rules("s3://lake/warehouse/demo/events", properties)
    assert finding.standing is standing
    assert "c4n4ry" not in finding.found


@pytest.mark.parametrize(
    ("said", "told"), [({"idempotency-key-lifetime": "PT30M"}, "kept for PT30M"), ({}, "not kept")]
)
def test_a_rest_service_is_asked_how_long_it_knows_a_request_again(said: dict[str, str], told: str) -> None:
    with rest_server({"/v1/config": (200, {"defaults": {}, "overrides": {}, **said})}) as (uri, _):
        [finding] = check_request_keys(connect("rest", {"type": "rest", "uri": uri}))
    assert finding.standing is Standing.OK
    assert finding.found.startswith(told)
