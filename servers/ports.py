"""Ports of this machine's loopback for servers that have to be told one."""

import socket


def free_port() -> int:
    """A port that nobody listens on now; whoever is slow to take it may find it taken."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
