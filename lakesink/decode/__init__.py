"""JSON and Avro documents to Arrow columns."""
