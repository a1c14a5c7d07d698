"""Other sinks from Kafka into Iceberg, each in a process of its own, measured alike."""
