"""Prometheus's own checker reads the alert rules and a scrape, and each alert fires on what it is for."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from lakesink.observe.metrics import LAST_LOOK, METRICS, Numbers
from lakesink_protocol import events
from lakesink_protocol.outcome import Committed
from release.tree import ROOT
from servers.prometheus import promtool

pytestmark = pytest.mark.interop
RULES = ROOT / "examples" / "deploy" / "prometheus" / "lakesink.rules.yaml"
LABELS = 'table="shop.orders",sink="orders",branch="main"'
FIRES = {
    "LakesinkBatchRefused": ({f'lakesink_batches_total{{{LABELS},outcome="refused"}}': "0x5 1x5"}, "10m"),
    "LakesinkBatchesFail": ({f'lakesink_batches_total{{{LABELS},outcome="failed"}}': "0+1x10"}, "10m"),
    "LakesinkQueryEnded": ({f"lakesink_query_running{{{LABELS}}}": "1x2 0x20"}, "15m"),
    "LakesinkRowsUncommitted": ({f"lakesink_uncommitted_age_seconds{{{LABELS}}}": "0+60x40"}, "35m"),
    "LakesinkSourceUnread": ({f"lakesink_unread_age_seconds{{{LABELS}}}": "0+60x40"}, "35m"),
    "LakesinkConsumerBehind": (
        {
            f"lakesink_last_committed_batch{{{LABELS}}}": "200x30",
            f'lakesink_consumed_batch{{{LABELS},consumer="silver"}}': "50x30",
        },
        "15m",
    ),
    "LakesinkNoCommit": ({f"lakesink_last_commit_timestamp_seconds{{{LABELS}}}": "0x90"}, "65m"),
    "LakesinkNoFirstCommit": ({f"lakesink_committed_rows_total{{{LABELS}}}": "0x90"}, "65m"),
    "LakesinkTableUnread": ({f"lakesink_last_look_timestamp_seconds{{{LABELS}}}": "0x90"}, "10m"),
    "LakesinkCommitsUnclear": ({f'lakesink_commit_attempts_total{{{LABELS},outcome="unknown"}}': "0+1x10"}, "10m"),
    "LakesinkDeadLetters": ({f"lakesink_dead_letters_total{{{LABELS}}}": "0x5 3x5"}, "10m"),
}
"""Series, a value a minute, and when the alert of that name must fire."""


@pytest.fixture(scope="module")
def checker() -> Path:
    return promtool()


def checked(checker: Path, *call: str, given: bytes = b"") -> str:
    done = subprocess.run([checker, *call], input=given, capture_output=True, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr).decode()
    return (done.stdout + done.stderr).decode()


def test_prometheus_accepts_the_rules(checker: Path) -> None:
    assert f"SUCCESS: {len(FIRES)} rules found" in checked(
        checker, "check", "rules", "--lint=all", "--lint-fatal", str(RULES)
    )


def test_each_alert_fires_on_what_it_is_for_and_not_before(checker: Path, tmp_path: Path) -> None:
    document: dict[str, Any] = {"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": []}
    for alert, (series, at) in FIRES.items():
        given = [{"series": name, "values": values} for name, values in series.items()]
        quiet = {"eval_time": "1m", "alertname": alert, "exp_alerts": []}
        document["tests"].append({"interval": "1m", "input_series": given, "alert_rule_test": [quiet]})
        fires = f'count(ALERTS{{alertname="{alert}",alertstate="firing"}}) or vector(0)'
        document["tests"][-1]["promql_expr_test"] = [
            {"expr": fires, "eval_time": at, "exp_samples": [{"labels": "{}", "value": 1}]}
        ]
    path = tmp_path / "rules_test.yaml"
    path.write_text(json.dumps(document))
    assert "SUCCESS" in checked(checker, "test", "rules", str(path))


def test_prometheus_finds_no_fault_in_the_names_of_a_scrape(checker: Path) -> None:
    numbers = Numbers()
    stream = numbers.stream("shop.orders", "orders", "main")
    stream(events.QueryProgressed(3))
    stream(events.BatchesRead(7, "shop.raw", "raw", "main"))
    stream(events.OffsetsRead(3, None, [], 7))
    stream(events.QueryEnded())
    stream.tell(LAST_LOOK, 1)
    stream(events.BatchFailed(3, "shop.orders", "orders", 1.5, 1.0, True, "LAKESINK_GAP", "it is", ()))  # noqa: FBT003
    stream(
        events.BatchFinished(3, "shop.orders", "orders", 1.5, 1.0, Committed(snapshot_id=7, rows=1, files=1, bytes=9))
    )
    registry = CollectorRegistry()
    registry.register(numbers)
    scrape = generate_latest(registry)
    assert all(f"# TYPE {metric.prometheus} ".encode() in scrape for metric in METRICS)
    assert checked(checker, "check", "metrics", given=scrape) == ""
