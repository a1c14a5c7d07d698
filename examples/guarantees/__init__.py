"""One stream, five sinks of one's own, and what each of them makes of a driver that dies."""
