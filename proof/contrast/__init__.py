"""The same cases, the same data and the same oracle over other ways to write a stream into an Iceberg table."""
