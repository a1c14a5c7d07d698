"""What a worker that was killed leaves on S3: an upload that was never completed, no object, and nothing referenced."""

import json
import os
import signal
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
from botocore.validate import ParamValidator

from lakesink_catalog.failpoints import VARIABLE
from lakesink_tools.audit.audit import audit
from servers.s3 import S3
from testkit.builders import FaultyCatalog, Lake, Stream
from tests.interop.pages import block

pytestmark = pytest.mark.interop


def opened(folder: Path, properties: dict[str, str]) -> Lake:
    catalog = FaultyCatalog("test", uri=f"sqlite:///{folder}/catalog.db", warehouse="s3://lake/w", **properties)
    return Lake(folder, catalog)


def dies_in_a_file(folder: Path, properties: dict[str, str]) -> None:
    os.environ[VARIABLE] = "while-writing=kill"
    Stream(opened(folder, properties)).run(1)


def unfinished(server: S3) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = server.client().list_multipart_uploads(Bucket="lake").get("Uploads", [])
    return found


def test_a_worker_killed_in_a_file_leaves_an_upload_that_nobody_lists(server: S3, tmp_path: Path) -> None:
    lake = opened(tmp_path, server.properties)
    lake.catalog.create_namespace("demo")
    lake.create()
    Stream(lake).run(0)
    worker = get_context("spawn").Process(target=dies_in_a_file, args=(tmp_path, server.properties))
    worker.start()
    worker.join(120)
    assert worker.exitcode == -signal.SIGKILL

    [left] = unfinished(server)
    assert "/data/events-1-" in left["Key"]
    listed = server.client().list_objects_v2(Bucket="lake")["Contents"]
    assert left["Key"] not in [found["Key"] for found in listed]
    proof = audit(lake.table())
    assert (proof.findings, proof.leftovers.files) == ((), 0)
    Stream(lake).run(1)
    assert len(lake.table().scan().to_arrow()) == 6
    assert [upload["Key"] for upload in unfinished(server)] == [left["Key"]], "it stays until a rule removes it"


def test_the_rule_that_removes_it_is_one_that_s3_takes(server: S3) -> None:
    asked = server.client().meta.service_model.operation_model("PutBucketLifecycleConfiguration")
    rules = json.loads(block("use/storage.md", "lifecycle"))
    report = ParamValidator().validate({"Bucket": "lake", "LifecycleConfiguration": rules}, asked.input_shape)
    assert not report.has_errors(), report.generate_report()
    wrong = {"Rules": [{**rules["Rules"][0], "AbortIncompleteMultipartUpload": 7}]}
    assert ParamValidator().validate({"Bucket": "b", "LifecycleConfiguration": wrong}, asked.input_shape).has_errors()
