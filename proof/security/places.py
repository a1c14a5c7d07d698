"""Where a user may put a secret, each place with a canary of its own, so that a leak tells where it came from."""

import hashlib
from collections.abc import Mapping
from typing import Any

CATALOG = "canary"
UNREACHABLE = "unreachable"
TABLE = "demo.events"
AWS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
PLACES = (
    "file: token", "file: credential", "file: s3.secret-access-key", "file: s3.access-key-id", "file: header.X-Team",
    "file: adls.account-key", "file: gcs.oauth2.token", "file: uri",
    "environment: s3.session-token", "environment: password",
    *(f"environment: {name}" for name in AWS),
    "properties: client_secret", "properties: header.Cookie", "properties: uri",
    "option: token", "option: header", "option: credential", "option: uri", "option: snapshot property",
    "option: branch",
    "keyword: snapshot property", "keyword: checkpoint", "keyword: unknown",
)  # fmt: skip


def canary(place: str, seed: int) -> str:
    """The secret of a place: of letters and digits, so that every encoding of URLs leaves it as it is."""
    return "c4n4ry" + hashlib.sha256(f"{seed}:{place}".encode()).hexdigest()[:20]


def configuration(secrets: Mapping[str, str], uri: str, warehouse: str) -> str:
    """PyIceberg's configuration file: the catalog that works, and all the keys that it has no use for."""
    named = {place.removeprefix("file: "): secret for place, secret in secrets.items() if place.startswith("file: ")}
    named.pop("uri")
    rest = {"type": "rest", "uri": f"http://me:{secrets['file: uri']}@127.0.0.1:9/"}
    catalogs = {CATALOG: {"type": "sql", "uri": uri, "warehouse": warehouse, **named}, UNREACHABLE: rest}
    lines = ["catalog:"]
    for name, properties in catalogs.items():
        lines += [f"  {name}:", *(f"    {key}: {value}" for key, value in properties.items())]
    return "\n".join(lines) + "\n"


def environment(secrets: Mapping[str, str]) -> dict[str, str]:
    """Variables of PyIceberg, and of AWS, whose every client looks there."""
    prefix = f"PYICEBERG_CATALOG__{CATALOG.upper()}__"
    return {
        f"{prefix}S3__SESSION_TOKEN": secrets["environment: s3.session-token"],
        f"{prefix}PASSWORD": secrets["environment: password"],
        **{name: secrets[f"environment: {name}"] for name in AWS},
    }


def given(secrets: Mapping[str, str], free_port: int) -> dict[str, Any]:
    """What the driver is told: properties by keyword, catalogs that fail, and options where no secret belongs."""
    user = f"me:{secrets['properties: uri']}"
    broken = [
        {"type": "rest", "uri": f"http://{user}@127.0.0.1:{free_port}/"},
        {"type": "rest", "uri": f"http://{user}@[bad/", "credential": f"me:{secrets['properties: uri']}"},
        {"type": "sql", "uri": f"postgresql://{user}@127.0.0.1:{free_port}/lake"},
        {"type": "sql", "uri": f"nosuch://{user}@127.0.0.1/lake"},
        {"type": "sql", "uri": "sqlite:////proc/no/catalog.db", "password": user},
        {"type": "tree", "uri": f"http://{user}@127.0.0.1/"},
        {"uri": f"{user}@127.0.0.1/", "token": secrets["properties: uri"]},
    ]
    return {
        "properties": {
            "auth": {"oauth2": {"client_secret": secrets["properties: client_secret"]}},
            "header.Cookie": secrets["properties: header.Cookie"],
        },
        "broken": broken,
        "options": {
            "catalog.token": secrets["option: token"],
            "catalog.header.X-Team": secrets["option: header"],
            "catalog.credential": f"me:{secrets['option: credential']}",
            "catalog.uri": f"postgresql://me:{secrets['option: uri']}@db/lake",
            "snapshot-property.api-key": secrets["option: snapshot property"],
            "branch": f"https://me:{secrets['option: branch']}@host/",
        },
        "keywords": {
            "snapshot_properties": {"api-key": secrets["keyword: snapshot property"]},
            "checkpoint": f"s3://me:{secrets['keyword: checkpoint']}@bucket/\n",
            "token": secrets["keyword: unknown"],
        },
    }
