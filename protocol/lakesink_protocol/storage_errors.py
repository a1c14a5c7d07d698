"""Classifies errors of object stores by their text, because Arrow raises one class for all of them. Pure."""

import re
from dataclasses import dataclass

_REFUSED = re.compile(
    r"AWS Error (?:ACCESS_DENIED|SIGNATURE_DOES_NOT_MATCH|INVALID_ACCESS_KEY_ID|INVALID_CLIENT_TOKEN_ID"
    r"|MISSING_AUTHENTICATION_TOKEN|REQUEST_EXPIRED|UNRECOGNIZED_CLIENT|UNKNOWN \(HTTP status 40[13]\))"
)
_UNREACHABLE = re.compile(r"AWS Error (?:NETWORK_CONNECTION|REQUEST_TIMEOUT|SERVICE_UNAVAILABLE|SLOW_DOWN)")


@dataclass(frozen=True, slots=True)
class StorageTrouble:
    """One kind of failure; `code` lacks the prefix ``LAKESINK_``, and `what` follows a subject such as "the table"."""

    code: str
    what: str
    action: str


REFUSED = StorageTrouble(
    "STORAGE_REJECTED",
    "cannot be used, because its object store rejects the credentials",
    "Check the keys or the role of this process (s3.access-key-id, AWS_ACCESS_KEY_ID, a profile): whether they have"
    " expired, and their permissions. Executors find their own. Then start the query again.",
)
UNREACHABLE = StorageTrouble(
    "STORAGE_UNREACHABLE",
    "cannot reach its object store",
    "Check the endpoint (s3.endpoint, s3.region) and that the store is up, then start the query again."
    " The time-outs are s3.connect-timeout and s3.request-timeout, in seconds.",
)


def storage_trouble(error: OSError) -> StorageTrouble | None:
    """The kind of failure; None if the error is not from an object store, or gives no reason."""
    text = str(error)
    # fsspec's clients raise PermissionError without a number; with a number, it is about a local folder.
    if _REFUSED.search(text) or (isinstance(error, PermissionError) and error.errno is None):
        return REFUSED
    return UNREACHABLE if _UNREACHABLE.search(text) else None
