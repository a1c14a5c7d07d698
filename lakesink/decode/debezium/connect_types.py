"""The types that Kafka Connect gives the columns of an event: the part ``schema`` of a JSON document. Pure."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

DECIMAL = "org.apache.kafka.connect.data.Decimal"
VARIABLE_SCALE = "io.debezium.data.VariableScaleDecimal"
BYTES = "bytes"
_SIDES = ("after", "before")


@dataclass(frozen=True, slots=True)
class ConnectType:
    """A column's type.

    Attributes:
        type: Kafka Connect's own name: ``int32``, ``string``, ``bytes``, ``struct``.
        name: Name of the meaning, ``io.debezium.time.Date``; empty if it has none.
        scale: Of a decimal.
        items: Of an array, or the values of a map.
        fields: Of a struct.
    """

    type: str
    name: str = ""
    scale: int = 0
    items: "ConnectType | None" = None
    fields: Mapping[str, "ConnectType"] = field(default_factory=dict)

    @property
    def is_decimal(self) -> bool:
        """True if its values are decimals in Base64."""
        return self.name in (DECIMAL, VARIABLE_SCALE)

    @property
    def holds_bytes(self) -> bool:
        """True if it is bytes, as a decimal is too, or contains them."""
        parts = [*self.fields.values(), *([self.items] if self.items is not None else [])]
        return self.type == BYTES or self.is_decimal or any(part.holds_bytes for part in parts)


Types = Mapping[str, ConnectType] | None
"""Types by column; None for documents without a schema."""


@lru_cache(maxsize=256)
def types_in(schema: str) -> Mapping[str, ConnectType]:
    """The types of the columns that a schema describes: those of an envelope's rows, or of a key; raises ValueError."""
    try:
        parts = {part["field"]: part for part in json.loads(schema)["fields"]}
        row = next((parts[side] for side in _SIDES if side in parts and "op" in parts), None)
        columns = parts.values() if row is None else row["fields"]
        return {column["field"]: _type(column) for column in columns}
    except (KeyError, TypeError, RecursionError):
        raise ValueError("not a schema of Kafka Connect") from None


def _type(column: Mapping[str, Any]) -> ConnectType:
    parameters = column.get("parameters") or {}
    items = column.get("items") or column.get("values")
    return ConnectType(
        str(column["type"]),
        str(column.get("name") or ""),
        int(parameters.get("scale", 0)),
        None if items is None else _type(items),
        {part["field"]: _type(part) for part in column.get("fields") or ()},
    )
