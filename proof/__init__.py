"""The proof that lakesink keeps its promise: one oracle, and many ways to break what it judges. Not shipped."""
