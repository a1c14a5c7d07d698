"""Classifies errors of object stores by their text, because Arrow raises one class for all of them. Pure."""

import re

_REFUSED = re.compile(
    r"AWS Error (?:ACCESS_DENIED|SIGNATURE_DOES_NOT_MATCH|INVALID_ACCESS_KEY_ID|INVALID_CLIENT_TOKEN_ID"
    r"|MISSING_AUTHENTICATION_TOKEN|REQUEST_EXPIRED|UNRECOGNIZED_CLIENT|UNKNOWN \(HTTP status 40[13]\))"
)
_UNREACHABLE = re.compile(
    r"AWS Error (?:NETWORK_CONNECTION|REQUEST_TIMEOUT|SERVICE_UNAVAILABLE|SLOW_DOWN|THROTTLING|INTERNAL_FAILURE"
    r"|UNKNOWN \(HTTP status 5\d\d\))"
)


def storage_trouble(error: OSError) -> str | None:
    """The code of the failure; None if the error is not from an object store, or gives no reason."""
    text = str(error)
    # fsspec's clients raise PermissionError without a number; with a number, it is about a local folder.
    if _REFUSED.search(text) or (isinstance(error, PermissionError) and error.errno is None):
        return "STORAGE_REJECTED"
    return "STORAGE_UNREACHABLE" if isinstance(error, TimeoutError) or _UNREACHABLE.search(text) else None
