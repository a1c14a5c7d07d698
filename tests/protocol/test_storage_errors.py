"""What an object store's client says is told by kind, and why it failed is in the first words."""

import pytest

from lakesink_protocol.redact import describe
from lakesink_protocol.storage_errors import storage_trouble

REFUSED, UNREACHABLE = "STORAGE_REJECTED", "STORAGE_UNREACHABLE"
KEY = "wh/demo/events/metadata/00001-a784b8bf-220d-4c42-a28e-40f068b8cf5e.metadata.json"
READING = f"When reading information for key '{KEY}' in bucket 'lake': "
WRITING = f"When initiating multiple part upload for key '{KEY}' in bucket 'lake': "


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (OSError(f"{READING}AWS Error ACCESS_DENIED during HeadObject operation: No response body."), REFUSED),
        (OSError(f"{WRITING}AWS Error SIGNATURE_DOES_NOT_MATCH during CreateMultipartUpload operation: no"), REFUSED),
        (OSError(f"{WRITING}AWS Error UNKNOWN (HTTP status 403) during PutObject operation: ExpiredToken"), REFUSED),
        (PermissionError("Forbidden"), REFUSED),
        (OSError(f"{READING}AWS Error NETWORK_CONNECTION during HeadObject operation: curlCode: 28"), UNREACHABLE),
        (OSError(f"{READING}AWS Error UNKNOWN (HTTP status 503) during GetObject operation: No response"), UNREACHABLE),
        (OSError(f"{READING}AWS Error INTERNAL_FAILURE during GetObject operation: try again"), UNREACHABLE),
        (TimeoutError("timed out"), UNREACHABLE),
        (OSError(f"{WRITING}AWS Error UNKNOWN (HTTP status 400) during PutObject operation: bucket"), None),
        (FileNotFoundError(2, "Path does not exist 'lake/x'"), None),
        (PermissionError(13, "Permission denied"), None),
        (OSError(28, "No space left on device"), None),
    ],
)
def test_a_failure_is_told_by_kind(error: OSError, code: str | None) -> None:
    assert storage_trouble(error) == code


def test_the_reason_is_not_cut_off_behind_the_name_of_the_object() -> None:
    told = describe(OSError(f"{READING}AWS Error ACCESS_DENIED during HeadObject operation: No response body."))
    assert told.startswith("OSError: AWS Error ACCESS_DENIED during HeadObject operation: No response body. When read")
