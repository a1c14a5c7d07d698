"""Writers' schemas by number: from a file that the driver has read, or from a Schema Registry.

The driver reads the file for every batch and sends its content with the plan. A registry is queried by the tasks,
because only values contain ids. The schema of an id never changes, so a process asks once. Credentials come from the
environment, see `USER`. They are never in a plan or a message.
"""

import base64
import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any
from urllib.parse import quote

from lakesink.decode.avro.schema import SchemaInvalid, WriterSchema, parse_writer_schema
from lakesink.parquet.filesystem import open_filesystem
from lakesink.rows.task_errors import DESCRIBED, registry_refused
from lakesink_protocol.errors import WriteError
from lakesink_protocol.redact import describe, redact
from lakesink_protocol.retry import Attempts, RetryPolicy

USER, PASSWORD, TOKEN = "LAKESINK_REGISTRY_USER", "LAKESINK_REGISTRY_PASSWORD", "LAKESINK_REGISTRY_TOKEN"
"""Environment variables of driver and executors. Spark's configuration pages redact the last two."""
_SCHEMES = ("http://", "https://")
_NO_SUCH_SCHEMA = 40403
_LONGEST_SECONDS = 10
_MOST_BYTES = 16 * 1024 * 1024
_DEEPEST_REFERENCE = 20
_POLICY = RetryPolicy(num_retries=3, min_wait_ms=200, max_wait_ms=2_000, total_timeout_ms=30_000)


class _NoSuchSchema(Exception):
    """The registry answered that it has no schema with this number."""


def is_url(registry: str) -> bool:
    """True for a registry service, False for a file."""
    return registry.lower().startswith(_SCHEMES)


def schemas_in_file(location: str) -> Mapping[int, str]:
    """Every schema of a registry file: a JSON object from ids to schemas."""
    try:
        filesystem, path_of = open_filesystem(location, {}, None)
        with filesystem.open_input_stream(path_of(location)) as file:
            content = bytes(file.read())
    except OSError as error:
        raise WriteError.of(
            "REGISTRY_UNREACHABLE", why=describe(error)[:DESCRIBED], registry=redact(location)
        ) from None
    try:
        document = json.loads(content)
        return {
            int(number): schema if isinstance(schema, str) else json.dumps(schema)
            for number, schema in document.items()
        }
    except (ValueError, AttributeError, RecursionError):
        raise registry_refused(redact(location), "it is not a JSON object with schemas by id") from None


def schemas_of(
    registry: str, in_file: Mapping[int, str], *, connect_names: bool = False
) -> Callable[[int], WriterSchema | None]:
    """A function from a number to a schema, None if unknown; it raises WriteError if the registry is unusable."""

    def find(number: int) -> WriterSchema | None:
        if number not in in_file and not is_url(registry):
            return None
        try:
            texts = _fetched(registry.rstrip("/"), number) if is_url(registry) else (in_file[number],)
            return parse_writer_schema(texts, connect_names=connect_names)
        except _NoSuchSchema:
            return None
        except SchemaInvalid as error:
            raise registry_refused(redact(registry), f"its schema {number} cannot be used: {error}") from None

    return cache(find)


@lru_cache(maxsize=1024)
def _fetched(registry: str, number: int) -> tuple[str, ...]:
    """A schema as JSON, after the schemas that it refers to."""
    return tuple(_with_references(registry, _ask(registry, f"schemas/ids/{number}"), 0, {}).values())


def _with_references(registry: str, answer: Mapping[str, Any], depth: int, found: dict[str, str]) -> dict[str, str]:
    """Texts of the schemas by subject and version, each after the schemas that it refers to."""
    if answer.get("schemaType", "AVRO") != "AVRO":
        raise _NoSuchSchema  # values of another format are not Avro
    if depth > _DEEPEST_REFERENCE:
        raise SchemaInvalid("its references are circular or too deep")
    try:
        for part in answer.get("references") or ():
            subject, version = quote(part["subject"], safe=""), int(part["version"])
            if f"{subject}/{version}" not in found:
                below = _ask(registry, f"subjects/{subject}/versions/{version}")
                _with_references(registry, below, depth + 1, found)
                found[f"{subject}/{version}"] = found.pop("")
        found[""] = str(answer["schema"])
    except (KeyError, TypeError, ValueError):
        raise SchemaInvalid("the registry's answer has an unexpected form") from None
    return found


@dataclass(frozen=True, slots=True)
class _Waiting:
    monotonic_ms: Callable[[], int] = lambda: int(time.monotonic() * 1000)
    sleep_ms: Callable[[float], None] = lambda wait: time.sleep(wait / 1000)
    jitter: Callable[[], float] = lambda: 0.5


def _ask(registry: str, path: str) -> Mapping[str, Any]:
    """An answer of the registry, with retries."""
    trouble = ""
    for _ in Attempts(_POLICY, _Waiting()):
        try:
            headers = {"Accept": "application/json", **_credentials()}
            request = urllib.request.Request(f"{registry}/{path}", headers=headers)  # noqa: S310 - of http(s)
            with urllib.request.build_opener(_NoRedirect).open(request, timeout=_LONGEST_SECONDS) as response:
                answer = _object(response.read(_MOST_BYTES))
            if answer is None:
                raise SchemaInvalid("the registry's answer is not a JSON object")
            return answer
        except urllib.error.HTTPError as error:
            _raise_if_final(registry, path, error)
            trouble = f"it answers {error.code}"
        except OSError as error:
            trouble = describe(error)
    raise WriteError.of("REGISTRY_UNREACHABLE", why=trouble[:DESCRIBED], registry=redact(registry))


def _raise_if_final(registry: str, path: str, error: urllib.error.HTTPError) -> None:
    """Raise unless a retry can help. Only the registry's code means a missing schema: any other server answers 404."""
    with error:
        if error.code == 404 and (_object(error.read(_MOST_BYTES)) or {}).get("error_code") == _NO_SUCH_SCHEMA:
            raise _NoSuchSchema
    if error.code < 500 and error.code != 429:
        hint = f"; set {USER} and {PASSWORD} in the environment" if error.code in (401, 403) else ""
        raise registry_refused(redact(registry), f"it answers {error.code} to {path[:40]}{hint}")


def _object(body: bytes) -> dict[str, Any] | None:
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return answer if isinstance(answer, dict) else None


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: a password is sent only to the address that the user named."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _credentials() -> dict[str, str]:
    user, token = os.environ.get(USER), os.environ.get(TOKEN)
    if token:
        return {"Authorization": f"Bearer {token}"}
    if user:
        pair = f"{user}:{os.environ.get(PASSWORD, '')}"
        return {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode('ascii')}"}
    return {}
