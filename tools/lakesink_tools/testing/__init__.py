"""The suite for sinks of your own, which `lakesink.testing` offers. It needs pytest."""
