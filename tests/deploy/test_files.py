"""The files for systemd, Kubernetes, Airflow, Prometheus and Grafana are well formed, and name what there is."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import strictyaml

from lakesink.observe.metrics import METRICS, MetricKind
from lakesink_tools.cli.main import main
from release.tree import ROOT

FILES = ROOT / "examples" / "deploy"
UNIT = FILES / "lakesink-orders.service"
DOCKERFILE = (FILES / "kubernetes" / "Dockerfile").read_text()
SCHEMA = Path(__file__).with_name("spark_application.json")
"""The part of the schema of Kubeflow's `SparkApplication` that the manifest uses."""


def options_of(command: str) -> set[str]:
    params = main.commands[command].params
    return {name for option in params for name in (*option.opts, *option.secondary_opts)}


def options_of_the_stream() -> set[str]:
    program = (FILES / "orders_stream.py").read_text()
    return set(re.findall(r'add_argument\(\s*"(--[a-z-]+)"', program))


def options_in(command: list[str]) -> set[str]:
    return {word for word in command if word.startswith("--")}


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not on this machine")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    here = UNIT.read_text().replace("/opt/lakesink/bin/", f"{Path(sys.executable).parent}/")
    (tmp_path / UNIT.name).write_text(here)
    call = ["systemd-analyze", "verify", "--man=no", str(tmp_path / UNIT.name)]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    assert (done.returncode, [line for line in done.stderr.splitlines() if UNIT.name in line]) == (0, [])


def test_the_unit_signals_python_only_and_gives_it_longer_than_the_grace() -> None:
    settings = dict(re.findall(r"^(\w+)=(.+)$", UNIT.read_text(), re.MULTILINE))
    [grace] = re.findall(r"^GRACE_SECONDS = ([\d.]+)$", (FILES / "orders_stream.py").read_text(), re.MULTILINE)
    assert settings["KillMode"] == "mixed"
    assert float(settings["TimeoutStopSec"]) > float(grace)
    assert settings["Restart"] == "on-failure"


def test_the_commands_of_the_unit_have_options_that_exist() -> None:
    text = UNIT.read_text().replace("\\\n", " ")
    before, start = (
        shlex.split(re.findall(rf"^{name}=(.+)$", text, re.MULTILINE)[0]) for name in ("ExecStartPre", "ExecStart")
    )
    assert options_in(start) <= options_of_the_stream()
    assert options_in(before) <= {
        name for option in main.commands["doctor"].params for name in (*option.opts, *option.secondary_opts)
    }


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not on this machine")
@pytest.mark.parametrize("unit", ["lakesink-orders-health.service", "lakesink-orders-health.timer"])
def test_systemd_accepts_the_watch_over_the_table(unit: str, tmp_path: Path) -> None:
    for path in FILES.glob("lakesink-orders-health.*"):
        here = path.read_text().replace("/opt/lakesink/bin/", f"{Path(sys.executable).parent}/")
        (tmp_path / path.name).write_text(here)
    call = ["systemd-analyze", "verify", "--man=no", str(tmp_path / unit)]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    assert (done.returncode, [line for line in done.stderr.splitlines() if "lakesink-" in line]) == (0, [])


def test_unit_and_probe_ask_for_the_health_of_the_table_with_options_that_exist() -> None:
    unit = (FILES / "lakesink-orders-health.service").read_text()
    [of_unit] = re.findall(r"^ExecStart=/opt/lakesink/bin/(.+)$", unit, re.MULTILINE)
    deployment = (FILES / "kubernetes" / "health.yaml").read_text()
    of_pod, of_probe = (found.split(", ") for found in re.findall(r"command: \[(.+)\]", deployment))
    assert shlex.split(of_unit) == of_probe
    assert options_in(of_probe) <= options_of("health")
    assert (of_pod[:2], options_in(of_pod) <= options_of("watch")) == (["lakesink", "watch"], True)
    assert manifest()["spec"]["image"] in deployment


def misfits(value: Any, schema: dict[str, Any], where: str = "") -> list[str]:
    """What of a manifest its schema does not have; numbers are texts, as this reader of YAML gives them."""
    match schema["type"]:
        case "object" if "properties" in schema:
            known: dict[str, Any] = schema["properties"]
            missing = [f"{where} lacks {name}" for name in schema.get("required", []) if name not in value]
            unknown = [f"{where}.{name} is unknown" for name in value if name not in known]
            inner = [misfits(value[name], known[name], f"{where}.{name}") for name in value if name in known]
            return [*missing, *unknown, *(found for one in inner for found in one)]
        case "array":
            return [found for one in value for found in misfits(one, schema["items"], where)]
        case "integer":
            return [] if str(value).isdigit() else [f"{where} is no number"]
        case _:
            return [] if value in schema.get("enum", [value]) else [f"{where} is none of {schema['enum']}"]


def manifest() -> dict[str, Any]:
    return dict(strictyaml.load((FILES / "kubernetes" / "spark-application.yaml").read_text()).data)


def test_the_manifest_fits_the_schema_of_the_operator() -> None:
    schema = json.loads(SCHEMA.read_text())
    found = manifest()
    assert misfits(found, schema) == []
    spec = found["spec"]
    assert misfits({**found["spec"], "mode": "local"}, schema["properties"]["spec"]) != []
    assert misfits({**spec, "executors": {}}, schema["properties"]["spec"]) == [".executors is unknown"]


def test_only_the_driver_gets_the_configuration_of_the_catalog() -> None:
    spec = manifest()["spec"]
    assert [secret["name"] for secret in spec["driver"]["secrets"]] == ["pyiceberg"]
    assert {"secrets", "env"} & spec["executor"].keys() == set()
    assert options_in(spec["arguments"]) <= options_of_the_stream()


def test_the_image_has_one_spark_and_what_it_copies_exists() -> None:
    spark = manifest()["spec"]["sparkVersion"]
    assert re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE) == [
        f"apache/spark:{spark}-scala2.13-java17-ubuntu",
        "python:3.11-slim-bookworm",
    ]
    lock = (ROOT / "requirements" / "dev.txt").read_text()
    assert f"pyspark=={spark}\n" in lock
    [py4j] = re.findall(r"py4j-([\d.]+)-src\.zip", DOCKERFILE)
    assert f"py4j=={py4j}\n" in lock
    copied = re.findall(r"^COPY (?!--from)(\S+)", DOCKERFILE, re.MULTILINE)
    assert copied == ["lakesink-*.whl", "orders_stream.py"]
    assert manifest()["spec"]["mainApplicationFile"] == "local:///opt/lakesink/orders_stream.py"
    assert re.findall(r"^USER (\S+)", DOCKERFILE, re.MULTILINE) == ["185"], "no container runs as root"


def test_the_tasks_of_the_dag_have_options_that_exist() -> None:
    text = (FILES / "airflow" / "orders_dag.py").read_text()
    names = dict(re.findall(r'^(\w+) = "(.+)"$', text, re.MULTILINE))
    commands = [command.format(**names) for command in re.findall(r'bash_command=f"(.+)"', text)]
    load, check, health = map(shlex.split, commands)
    assert options_in(load) <= options_of_the_stream()
    assert check[:2] == ["/opt/lakesink/bin/lakesink", "audit"]
    assert options_in(check) <= options_of("audit")
    assert health[:2] == ["/opt/lakesink/bin/lakesink", "health"]
    assert options_in(health) <= options_of("health")


RULES = FILES / "prometheus" / "lakesink.rules.yaml"
DASHBOARD = FILES / "grafana" / "lakesink.json"
EXPORTED = {metric.prometheus: metric for metric in METRICS}


def metrics_in(text: str) -> set[str]:
    return set(re.findall(r"\blakesink_\w+", text))


def expressions() -> list[str]:
    """What Prometheus is asked: by the rules and by the dashboard."""
    rules = re.findall(r"^ +expr: (.+)$", RULES.read_text(), re.MULTILINE)
    panels = json.loads(DASHBOARD.read_text())["panels"]
    return rules + [target["expr"] for panel in panels for target in panel["targets"]]


@pytest.mark.parametrize("path", [RULES, DASHBOARD], ids=lambda path: path.name)
def test_rules_and_dashboard_name_metrics_that_are_exported(path: Path) -> None:
    named = metrics_in(path.read_text())
    assert len(named) > 5
    assert named <= EXPORTED.keys()


def test_what_prometheus_is_asked_has_labels_and_outcomes_that_are_exported() -> None:
    for expression in expressions():
        for name, selector in re.findall(r"(lakesink_\w+)\{([^}]*)\}", expression):
            for label, value in re.findall(r'(\w+)=~?"([^"]*)"', selector):
                assert label in EXPORTED[name].labels
                assert value in EXPORTED[name].known or value.startswith("$")


def test_only_counters_have_a_rate() -> None:
    asked = [found for one in expressions() for found in re.findall(r"(?:rate|increase)\((lakesink_\w+)", one)]
    assert {EXPORTED[name].kind for name in asked} == {MetricKind.COUNTER}


def test_panels_have_places_and_ids_of_their_own() -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels]
    assert len(set(places)) == len({panel["id"] for panel in panels}) == len(panels)
