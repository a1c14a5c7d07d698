"""``format("lakesink")``: Spark's Python data source, to write and to read."""
