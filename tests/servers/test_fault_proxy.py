"""The proxy spoils the commit that it is told to, in every way, and the catalog has the effect that is said."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from requests.adapters import HTTPAdapter

from lakesink_catalog.connect.catalog import connect
from lakesink_catalog.connect.rest import _BoundedAdapter
from servers.fault_proxy import FaultProxy, HttpFault, Kind, fault_proxy, is_commit
from testkit.rest_catalog import RestService, rest_catalog

TABLE = "demo.events"
PATIENT_SECONDS = 60.0
GIVES_UP_SECONDS = {Kind.SILENCE: 5.0, Kind.LATE: 5.0, Kind.DRIP: 1.0}
"""Given to the one request that is spoilt. An answer that drips is given up after five times that."""
LATE_SECONDS = 12.0
ROWS = pa.table({"id": pa.array([1], pa.int64())})


@dataclass(frozen=True, slots=True)
class Between:
    backing: Catalog
    service: RestService
    proxy: FaultProxy
    through: Catalog

    def commit(self, seconds: float = PATIENT_SECONDS) -> Any:
        """One commit that sets a property, with no retry of its own; no other request has so little time."""
        table = self.through.load_table(TABLE)
        with self._given(seconds), table.transaction() as transaction:
            transaction.set_properties(moved="yes")

    @contextmanager
    def _given(self, seconds: float) -> Iterator[None]:
        session = self.through._session  # type: ignore[attr-defined] # noqa: SLF001 - PyIceberg shows it to nobody
        before = dict(session.adapters)
        for prefix in before:
            session.mount(prefix, _BoundedAdapter(HTTPAdapter(), seconds))
        try:
            yield
        finally:
            session.adapters.update(before)

    def applied(self) -> bool:
        return "moved" in self.backing.load_table(TABLE).properties


@pytest.fixture
def between(tmp_path: Path) -> Iterator[Between]:
    backing = SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/warehouse")
    with rest_catalog(backing) as (uri, service), fault_proxy(uri) as proxy:
        properties = {"type": "rest", "uri": proxy.uri, "lakesink.http-timeout-seconds": str(PATIENT_SECONDS)}
        through = connect("lake", properties)
        backing.create_namespace("demo")
        backing.create_table(TABLE, ROWS.schema, properties={"commit.retry.num-retries": "0"})
        yield Between(backing, service, proxy, through)


SPOILT = [
    HttpFault(kind, applied, status)
    for kind, status in [
        (Kind.STATUS, 400),
        (Kind.STATUS, 409),
        (Kind.STATUS, 503),
        (Kind.STATUS, 599),
        (Kind.DROP, 0),
        (Kind.SILENCE, 0),
        (Kind.CUT, 0),
        (Kind.GARBLE, 0),
        (Kind.DRIP, 0),
    ]
    for applied in (True, False)
]
LONG = {HttpFault(Kind.SILENCE, applied=False), HttpFault(Kind.DRIP, applied=True)}
"""The client waits in vain for seconds. Each kind has one short sibling, and other kinds are tried both ways."""


@pytest.mark.parametrize(
    "fault",
    [pytest.param(fault, id=fault.name, marks=pytest.mark.nightly if fault in LONG else ()) for fault in SPOILT],
)
def test_a_spoilt_commit_fails_for_the_client_and_is_applied_or_not_as_told(between: Between, fault: HttpFault) -> None:
    seen: list[bool] = []
    between.proxy.arm(1, fault, lambda: seen.append(between.applied()))
    with pytest.raises(Exception):  # noqa: B017, PT011 # whatever PyIceberg makes of it
        between.commit(GIVES_UP_SECONDS.get(fault.kind, PATIENT_SECONDS))
    assert between.applied() is fault.applied
    assert seen == [fault.applied]
    between.commit()
    assert between.applied()


@pytest.mark.nightly
def test_a_late_commit_is_applied_after_the_client_has_given_up(between: Between) -> None:
    between.proxy.arm(1, HttpFault(Kind.LATE, seconds=LATE_SECONDS), lambda: None)
    with pytest.raises(Exception):  # noqa: B017, PT011 # whatever PyIceberg makes of it
        between.commit(GIVES_UP_SECONDS[Kind.LATE])
    assert between.proxy.met.is_set()
    assert not between.applied()
    assert between.proxy.over.wait(60)
    assert between.applied()


def test_a_slow_commit_is_answered_truly(between: Between) -> None:
    between.proxy.arm(1, HttpFault(Kind.SLOW, seconds=0.1), lambda: None)
    between.commit()
    assert between.proxy.met.is_set()
    assert between.applied()


def test_a_commit_that_is_delivered_twice_is_there_once(between: Between) -> None:
    between.proxy.arm(1, HttpFault(Kind.TWICE), lambda: None)
    with pytest.raises(Exception, match="created concurrently"):
        between.through.load_table(TABLE).append(ROWS)
    assert between.proxy.answers == [200, 409]
    assert len(between.backing.load_table(TABLE).metadata.snapshots) == 1  # PyIceberg itself has deleted its manifests


def test_only_the_commit_that_is_meant_is_spoilt(between: Between) -> None:
    between.proxy.arm(2, HttpFault(Kind.STATUS, applied=False, status=500), lambda: None)
    between.commit()
    with pytest.raises(Exception, match="something in between"):
        between.commit()
    between.commit()
    assert between.proxy.answers == [200, 200]


@pytest.mark.parametrize(
    ("method", "path", "commit"),
    [
        ("POST", "/v1/namespaces/demo/tables/events", True),
        ("POST", "/v1/lake/namespaces/demo/tables/events?x=1", True),
        ("GET", "/v1/namespaces/demo/tables/events", False),
        ("POST", "/v1/namespaces/demo/tables", False),
        ("POST", "/v1/namespaces/tables", False),
        ("POST", "/v1/namespaces/demo/tables/events/metrics", False),
    ],
)
def test_commits_are_told_from_other_requests(method: str, path: str, commit: bool) -> None:  # noqa: FBT001 # a case
    assert is_commit(method, path) is commit


def test_whoever_waits_is_let_go_at_the_end(tmp_path: Path) -> None:
    backing = SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/warehouse")
    with rest_catalog(backing) as (uri, _), fault_proxy(uri) as proxy:
        proxy.arm(1, HttpFault(Kind.SILENCE, applied=False), lambda: None)
        waiting = threading.Thread(target=_post, args=(proxy.uri,))
        waiting.start()
        assert proxy.met.wait(60)
    waiting.join(60)
    assert not waiting.is_alive()


def _post(uri: str) -> None:
    with pytest.raises(Exception):  # noqa: B017, PT011 # the connection just ends
        FaultProxy(uri).forward("POST", "/v1/namespaces/demo/tables/events", {}, b"{}")
