"""What a task does with its rows: stages and writers, in executors."""
