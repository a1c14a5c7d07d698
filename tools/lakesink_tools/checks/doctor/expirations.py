"""Checks what expires: prepared batches, credentials vended by a catalog, objects in a bucket, idempotency keys.

`docs/operate/operating.md`, "Time-outs", lists what cannot be read from here.
"""

import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from pyarrow.fs import FileType
from pyiceberg.catalog import Catalog
from pyiceberg.io.fsspec import FsspecFileIO
from pyiceberg.table import Table

from lakesink.settings.settings import PREPARED_MAX_AGE
from lakesink_catalog.connect.rest import BoundedRestCatalog
from lakesink_catalog.read.history import sinks
from lakesink_catalog.words import counted
from lakesink_protocol.redact import describe
from lakesink_tools.audit.leftovers import PreparedRecord, opened_listing, waiting_batches
from lakesink_tools.checks.caught import caught
from lakesink_tools.checks.doctor.finding import Finding, Part, Standing, attempt_all

SHORTEST_CREDENTIALS = timedelta(minutes=15)
_PREPARED, _CREDENTIALS, _RULES, _KEYS = "prepared", "credentials", "object rules", "request keys"
_S3 = frozenset({"s3", "s3a", "s3n"})
_NO_RULES = "NoSuchLifecycleConfiguration"
_EXPIRES_AT = re.compile(r"(s3|gcs|adls)\..*expires-at(-ms)?(\..*)?")


def check_expirations(table: Table, now_ms: int) -> Iterator[Finding]:
    """Check all expirations of a table and its storage that can be read."""
    yield from attempt_all(Part.TABLE, _PREPARED, partial(_prepared, table, now_ms))
    yield from attempt_all(Part.TABLE, _CREDENTIALS, partial(lent_credentials, table.io.properties, now_ms))
    yield from attempt_all(Part.TABLE, _RULES, partial(object_rules, table.location(), table.io.properties))


def check_request_keys(catalog: Catalog) -> Iterator[Finding]:
    """How long a REST service remembers request keys, if it reports that; lakesink does not depend on it."""
    if isinstance(catalog, BoundedRestCatalog):
        lifetime = catalog.idempotency_key_lifetime()
        known = f"kept for {lifetime}" if lifetime else "not kept"
        found = f"{known}; lakesink sends none: the assertions of a late or repeated request refuse it"
        yield Finding(Part.CATALOG, _KEYS, Standing.OK, found)


def lent_credentials(properties: Mapping[str, Any], now_ms: int) -> Iterator[Finding]:
    """Storage credentials that the catalog vended with the table. Each batch gets new ones, and must end in time."""
    ends = [int(value) for name, value in properties.items() if _EXPIRES_AT.fullmatch(name) and str(value).isdecimal()]
    if not ends:
        return
    left = timedelta(milliseconds=min(ends) - now_ms)
    found = f"vended by the catalog, valid for {_span(left)}: no batch may take longer to write and commit"
    if left >= SHORTEST_CREDENTIALS:
        yield Finding(Part.TABLE, _CREDENTIALS, Standing.OK, found)
    else:
        fix = "Let the catalog vend credentials that outlive the longest batch, or make batches smaller."
        yield Finding(Part.TABLE, _CREDENTIALS, Standing.WARNING, found, fix)


def object_rules(location: str, properties: Mapping[str, Any]) -> Iterator[Finding]:
    """Lifecycle rules of the table's S3 bucket, read through the client of the table's file system."""
    place = urlsplit(location)
    if place.scheme not in _S3:
        return

    def read() -> list[Mapping[str, Any]]:
        system = FsspecFileIO(dict(properties)).get_fs(place.scheme)
        return list(system.call_s3("get_bucket_lifecycle_configuration", Bucket=place.netloc)["Rules"])

    rules = caught(read)
    if isinstance(rules, Exception) and _NO_RULES in f"{rules} {rules.__cause__}":
        rules = []
    if isinstance(rules, Exception):
        fix = "Check with the owner of the bucket that no lifecycle rule expires objects of the warehouse."
        found = f"the bucket's rules cannot be read: {describe(rules, properties)}"
        yield Finding(Part.TABLE, _RULES, Standing.SKIPPED, found, fix)
        return
    prefix = place.path.lstrip("/")
    removing = [str(rule.get("ID", "without an id")) for rule in rules if _removes(rule, prefix)]
    if removing:
        fix = "Remove them, or narrow their prefix: files that a table references must stay, regardless of age."
        found = f"lifecycle rules of the bucket remove objects of the table by their age: {', '.join(removing)}"
        yield Finding(Part.TABLE, _RULES, Standing.FAILED, found, fix)
    else:
        yield Finding(Part.TABLE, _RULES, Standing.OK, "no lifecycle rule of the bucket removes objects of the table")


def _prepared(table: Table, now_ms: int) -> Iterator[Finding]:
    opened, waiting = opened_listing(table), waiting_batches(table, sinks(table))
    if opened is None or waiting is None:
        found = f"not looked for: {type(table.io).__name__} cannot list"
        yield Finding(Part.TABLE, _PREPARED, Standing.SKIPPED, found)
        return
    if not waiting:
        yield Finding(Part.TABLE, _PREPARED, Standing.OK, "no prepared batch waits for a driver")
    system, path_of = opened
    for record in waiting:
        there = system.get_file_info([path_of(location) for location, _ in record.files])
        gone = sum(file.type is not FileType.File for file in there)
        yield _waiting(record, timedelta(milliseconds=now_ms - record.created_ms), gone)


def _waiting(record: PreparedRecord, age: timedelta, gone: int) -> Finding:
    longest = PREPARED_MAX_AGE
    found = f"batch {record.batch_id} of {record.key.name} was prepared {_span(age)} ago and is not committed"
    if gone:
        found = f"{found}; {counted(gone, 'file')} of {len(record.files)} missing, so the next driver writes it again"
        fix = f"Let orphan cleanups keep files for {_span(longest)} plus the duration of the longest batch."
        return Finding(Part.TABLE, _PREPARED, Standing.WARNING, found, fix)
    if not timedelta() <= age <= longest:
        found = (
            f"{found}: too old for prepared_max_age, {_span(longest)} by default, so the next driver writes it again"
        )
        fix = "Start its stream while the source still has the rows of the batch."
        return Finding(Part.TABLE, _PREPARED, Standing.WARNING, found, fix)
    found = f"{found}; a driver that starts within {_span(longest - age)} commits it"
    return Finding(Part.TABLE, _PREPARED, Standing.OK, found)


def _removes(rule: Mapping[str, Any], prefix: str) -> bool:
    """True if a rule removes objects below a prefix by their age; filters by tag and size count as matching all."""
    expiration, chosen = rule.get("Expiration", {}), rule.get("Filter", {})
    if rule.get("Status") != "Enabled" or not {"Days", "Date"} & expiration.keys():
        return False
    within = chosen.get("Prefix", chosen.get("And", {}).get("Prefix", rule.get("Prefix", "")))
    return prefix.startswith(within) or within.startswith(f"{prefix}/")


def _span(length: timedelta) -> str:
    hours, seconds = divmod(max(int(length.total_seconds()), 0), 3600)
    return f"{hours} hours" if hours else f"{seconds // 60} minutes"
