"""Whatever others write, it is refused by name or safe to believe; and the attack can tell when it is not."""

import json
from base64 import b64encode
from collections.abc import Callable
from typing import Any

import pytest

from lakesink.sinks.iceberg import checked_receipts as votes
from lakesink.sinks.iceberg import logs
from lakesink.sinks.staged import part_receipt
from lakesink_catalog.tables import locations
from lakesink_protocol import redact
from lakesink_protocol.situation import Situation
from proof.security.canary import leaks_in, plant_and_look
from proof.security.judge import lies_in
from proof.security.places import PLACES, canary
from proof.security.run import TARGETS, attack, replayed, run

SEED = 20_000_101


@pytest.mark.nightly
def test_twenty_thousand_hostile_inputs_are_refused_by_name_or_safe_to_believe() -> None:
    figures = run(20_000, SEED, canary=False)
    assert [f"{defect.what}: {defect.replay}" for defect in figures.defects] == []
    assert set(figures.by_target) == set(TARGETS)
    assert min(figures.by_kind[kind] for kind in ("untouched", "deep nesting", "bomb", "secret")) > 10
    assert {"RECEIPT_REJECTED", "LEDGER_DAMAGED", "SETTING_INVALID", "LOCATION_REFUSED"} <= set(figures.refused)
    assert figures.accepted + figures.written_again + sum(figures.refused.values()) == figures.inputs
    assert figures.peak_mib < 4096
    assert json.loads(json.dumps(figures.to_json()))["well"]


def _always(*_: Any, **__: Any) -> bool:
    return True


BREACHES: dict[str, tuple[str, Any, str, Any]] = {
    "names of others' files": ("receipt", votes, "is_location", _always),
    "statistics that cannot be": ("receipt", votes, "counts_agree", _always),
    "bounds of no type": ("receipt", votes, "bounds_fit", _always),
    "manifests that hold something else": ("prepared record", logs, "matches_manifests", _always),
    "records of others' files": ("prepared record", logs, "is_data_file", _always),
    "sums that no marker can represent": ("receipt of files", part_receipt, "fits_a_marker", _always),
    "an entry set low": ("ledger entry, expired history", Situation, "_tag_is_newer", property(lambda _: False)),
    "an entry that nothing contradicts": (
        "ledger entry, whole history",
        Situation,
        "entry_contradicted",
        property(lambda _: False),
    ),
    "secrets as options": ("options and names", redact, "is_secret", lambda _: False),
    "places outside": ("table properties", locations, "_is_at_or_under", _always),
}
"""Way in, and the check that is taken away there."""


@pytest.mark.parametrize("name", BREACHES)
@pytest.mark.soak
def test_an_attack_tells_when_a_check_is_not_made(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    target, where, check, without = BREACHES[name]
    monkeypatch.setattr(where, check, without)
    assert attack(target, SEED, range(6_000), most_defects=1).defects


def test_an_input_is_replayed_by_its_seed_and_number() -> None:
    data, outcome = replayed("receipt", SEED, 3)
    assert data
    assert outcome


@pytest.mark.soak
def test_planted_secrets_are_seen_nowhere() -> None:
    figures = plant_and_look(SEED, spark=False)
    assert figures.leaks == ()
    assert figures.unnamed == ()
    assert figures.places == len(PLACES)


@pytest.mark.nightly
def test_planted_secrets_are_seen_nowhere_in_spark_either() -> None:
    figures = plant_and_look(SEED, spark=True)
    assert figures.leaks == ()
    assert {"plans", "events", "query errors", "arguments"} <= set(figures.outputs)


SPELLINGS: dict[str, Callable[[bytes], bytes]] = {
    "plain": lambda secret: b"x" + secret + b"y",
    "backwards": lambda secret: secret[::-1],
    "hexadecimal": lambda secret: secret.hex().encode(),
    "Base64 one on": lambda secret: b64encode(b"x" + secret + b"yz"),
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_secret_is_found_however_it_is_spelled(spelling: str) -> None:
    secret = canary("here", SEED)
    outputs = {"log": SPELLINGS[spelling](secret.encode()), "plan": b"nothing"}
    assert list(leaks_in(outputs, {"here": secret, "there": canary("there", SEED)})) == ["here in log"]


@pytest.mark.parametrize(
    ("path", "inside"),
    [
        ("file:///lake/data/a.parquet", True),
        ("file:/lake/data/a.parquet", True),
        ("/lake/data/a.parquet", True),
        ("file://host/lake/data/a.parquet", False),
        ("file:lake/data/a.parquet", False),
        ("file:/lake/data/../a.parquet", False),
        ("file:/lake/data/%2e%2e/a.parquet", False),
        ("file:/lake/data", False),
    ],
)
def test_a_path_lies_in_a_folder_however_its_scheme_is_spelled(path: str, *, inside: bool) -> None:
    assert lies_in(path, "file:///lake/data") is inside
