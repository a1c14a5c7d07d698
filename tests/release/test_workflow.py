"""The workflow builds by the commands of the Makefile, and only the job that publishes may speak for the project."""

from pathlib import Path
from typing import Any

import strictyaml

WORKFLOW = Path(__file__).parents[2] / ".github" / "workflows" / "release.yml"


def workflow() -> dict[str, Any]:
    return dict(strictyaml.load(WORKFLOW.read_text()).data)


def steps(job: str) -> list[dict[str, Any]]:
    return list(workflow()["jobs"][job]["steps"])


def test_it_runs_for_tags_of_versions_only() -> None:
    assert workflow()["on"] == {"push": {"tags": ["v*"]}}


def test_every_job_has_only_the_permission_that_it_needs() -> None:
    jobs = workflow()["jobs"]
    assert workflow()["permissions"] == {"contents": "read"}
    assert {name: job.get("permissions") for name, job in jobs.items()} == {
        "build": None,
        "publish": {"id-token": "write"},
        "announce": {"contents": "write"},
    }
    assert jobs["publish"]["environment"] == "release"
    assert "secrets." not in WORKFLOW.read_text()


def test_nothing_is_published_that_was_not_checked() -> None:
    assert [step["run"] for step in steps("build") if step.get("run", "").startswith("make")] == [
        "make install",
        "make dist",
    ]
    assert [workflow()["jobs"][job]["needs"] for job in ("publish", "announce")] == ["build", "publish"]
    assert all("run" not in step for step in steps("publish")), "no code of ours runs with the right to publish"


def test_the_tag_reaches_the_shell_as_a_variable() -> None:
    commands = [step["run"] for job in workflow()["jobs"] for step in steps(job) if "run" in step]
    assert [command for command in commands if "${{" in command] == []


def test_every_job_ends() -> None:
    assert all("timeout-minutes" in job for job in workflow()["jobs"].values())
