"""The outbox: each committed batch of a table, produced into a Kafka topic in one transaction and once."""
