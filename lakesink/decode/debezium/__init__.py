"""Debezium's change events, as JSON or Avro, to changes of rows."""
