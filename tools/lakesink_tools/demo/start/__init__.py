"""The files of a first project, which ``lakesink init`` copies as they are."""
