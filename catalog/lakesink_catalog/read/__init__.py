"""What a table shows of its batches and sinks."""
