"""Hostile identifiers and options: refused by name, or plain. A secret in an option is refused and never shown."""

import json
import random
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from lakesink.settings.options import OPTIONS
from lakesink.settings.settings import Settings
from lakesink.spark.source.source_options import stream_destination
from lakesink_catalog.tables.arrow_schema import iceberg_schema
from lakesink_catalog.tables.partition_by import parse_partition_by
from lakesink_catalog.tables.tables import parse_identifier
from lakesink_protocol.identity import SinkKey
from lakesink_protocol.redact import describe, redact
from proof.security.judge import ACCEPTED, refused_by, require
from proof.security.mutation import NUMBERS, SHAPES, TEXTS, Forged, honest_json

SECRET = "c4n4ry-Sw0rdfish-7731"  # noqa: S105 - planted, to be looked for
HONEST = {"table": "demo.events", "sink-id": "events", "checkpointLocation": "/ck"}
SECRET_KEYS = (
    "catalog.token", "catalog.credential", "catalog.s3.secret-access-key", "catalog.s3.access-key-id",
    "catalog.password",
    "catalog.header.X-Auth", "catalog.adls.account-key", "catalog.gcs.oauth2.token", "catalog.oauth2.client_secret",
    "snapshot-property.api-key", "catalog.adls.connection-string", "catalog.s3.session-token", "catalog.HEADER.cookie",
)  # fmt: skip
SECRET_VALUES = (
    f"postgresql://me:{SECRET}@db/lake", f"s3://key:{SECRET}@bucket/x", f"https://{SECRET}@rest/v1",
    f"postgresql://db/lake?user=me&password={SECRET}", f"https://rest/v1?sig={SECRET}", f"note: pass={SECRET}",
)  # fmt: skip
FORBIDDEN = frozenset("*?'\"`/\\#;:%<>|")
_SCHEMA = iceberg_schema(pa.schema([("day", pa.date32()), ("name", pa.string())]))
_NAMES = (*(option.name for option in OPTIONS), *(option.name.replace("_", "-") for option in OPTIONS), "catalog.uri")


@dataclass(slots=True)
class Options:
    """Options of a stream, as keywords and in Spark's spelling; names of tables and sinks; text of others' errors."""

    name: str = "options and names"
    _schema: Any = field(default=_SCHEMA, repr=False)

    def forge(self, chance: random.Random) -> Forged:
        kind = chance.choice(("keyword", "spark", "spark", "secret", "identifier", "partitions", "text"))
        odd = "".join(chance.choices((*TEXTS, "demo", "events", ".", "day"), k=chance.choice((1, 1, 2, 4))))
        match kind:
            case "keyword":
                value: Any = {chance.choice(_NAMES): chance.choice(chance.choice((NUMBERS, TEXTS, SHAPES)))}
            case "spark":
                value = {**HONEST, chance.choice((*_NAMES, *HONEST, odd[:300])): odd}
            case "secret":
                keyed = {chance.choice(SECRET_KEYS): SECRET}
                value = HONEST | (keyed if chance.random() < 0.6 else {"catalog.uri": chance.choice(SECRET_VALUES)})
            case _:
                value = odd
        return Forged(kind, honest_json([kind, value]))

    def feed(self, data: bytes) -> str:
        kind, value = json.loads(data)
        return refused_by(lambda: getattr(self, f"_{kind}")(value)) or ACCEPTED

    def _keyword(self, value: dict[str, Any]) -> None:
        settings = Settings.parse({"sink_id": "events", "checkpoint": "/ck"} | value)
        require(repr(settings).isprintable(), "a repr that moves the terminal")

    def _spark(self, value: dict[str, str]) -> None:
        found = stream_destination(value)
        parts = parse_identifier(found.table)
        require(
            all(part.isprintable() and not FORBIDDEN & set(part) for part in parts), "a name of a table as a pattern"
        )
        key: SinkKey = found.key
        require(key.name.isascii() and key.name.isprintable() and "/" not in key.name, "a sink id as a path")
        segments = key.record_folder.split("/")
        require(len(segments) == 3 and not {"", ".", ".."} & set(segments), "a folder of records elsewhere")

    def _secret(self, value: dict[str, str]) -> None:
        refused = refused_by(lambda: stream_destination(value))
        require(refused == "OPTION_SECRET", "a secret among the options of a query")
        try:
            stream_destination(value)
        except Exception as error:  # noqa: BLE001 - whatever is raised must not show it
            require(SECRET not in f"{error!s}{error!r}{error.__cause__!r}{error.__context__!r}", "a secret in an error")

    def _identifier(self, value: str) -> None:
        parts = parse_identifier(value)
        plain = all(part and part.isprintable() and not FORBIDDEN & set(part) for part in parts)
        require(plain and len(parts) > 1, "a name that is none")

    def _partitions(self, value: str) -> None:
        parse_partition_by(value, self._schema)

    def _text(self, value: str) -> None:
        told = describe(ValueError(f"{value} token={SECRET} {value} postgresql://a:{SECRET}@b"))
        require(SECRET not in told and SECRET not in redact(f"password: {SECRET} {value}"), "a secret in an error")
        require(told.isprintable() and len(told) <= LONGEST_TOLD, "an error without end")


LONGEST_TOLD = 160
