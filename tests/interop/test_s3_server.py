"""The S3 server that tables are tried on: it refuses as Amazon's does, and what it has acknowledged it keeps."""

from collections.abc import Iterator

import pytest
from botocore.exceptions import ClientError

from servers.s3 import S3, s3

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    with s3(tmp_path_factory.mktemp("s3"), "lake") as running:
        yield running


def test_of_two_that_create_one_object_the_second_is_refused(server: S3) -> None:
    client = server.client()
    client.put_object(Bucket="lake", Key="once", Body=b"first", IfNoneMatch="*")
    with pytest.raises(ClientError, match="PreconditionFailed"):
        client.put_object(Bucket="lake", Key="once", Body=b"second", IfNoneMatch="*")
    assert client.get_object(Bucket="lake", Key="once")["Body"].read() == b"first"


def test_what_was_acknowledged_is_there_after_a_kill(server: S3) -> None:
    server.client().put_object(Bucket="lake", Key="a/kept", Body=b"kept")
    server.kill()
    server.start()
    assert server.client().get_object(Bucket="lake", Key="a/kept")["Body"].read() == b"kept"


def test_another_secret_is_refused(server: S3) -> None:
    right, server.secret_key = server.secret_key, "another"
    try:
        with pytest.raises(ClientError, match="SignatureDoesNotMatch"):
            server.client().list_objects_v2(Bucket="lake")
    finally:
        server.secret_key = right
    assert server.client().list_objects_v2(Bucket="lake")["ResponseMetadata"]["HTTPStatusCode"] == 200


def test_a_bucket_that_is_not_there_is_named(server: S3) -> None:
    with pytest.raises(ClientError, match="NoSuchBucket"):
        server.client().put_object(Bucket="nowhere", Key="x", Body=b"")


def test_parts_of_an_upload_that_was_never_completed_are_no_object(server: S3) -> None:
    client = server.client()
    begun = client.create_multipart_upload(Bucket="lake", Key="half")
    client.upload_part(Bucket="lake", Key="half", UploadId=begun["UploadId"], PartNumber=1, Body=bytes(5 << 20))
    server.kill()
    server.start()
    assert "half" not in [found["Key"] for found in client.list_objects_v2(Bucket="lake").get("Contents", [])]
    [left] = client.list_multipart_uploads(Bucket="lake")["Uploads"]
    assert left["Key"] == "half"
    client.abort_multipart_upload(Bucket="lake", Key="half", UploadId=begun["UploadId"])
    assert client.list_multipart_uploads(Bucket="lake").get("Uploads", []) == []
