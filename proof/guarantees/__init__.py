"""The guarantee table, executed: six kinds of sink, two kinds of source, and a SIGKILL at every bad moment."""
