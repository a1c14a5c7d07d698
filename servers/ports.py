"""Ports of this machine's loopback for servers that have to be told one."""

import random
import socket
from contextlib import suppress

_BELOW_CONNECTIONS = range(20_000, 32_000)
"""Linux gives ports from 32,768 on, macOS from 49,152 on, to connections: any moment may take one of those."""


def free_port() -> int:
    """A port that nobody listens on now; of two who ask at once, the slower may find it taken."""
    for port in random.SystemRandom().sample(_BELOW_CONNECTIONS, len(_BELOW_CONNECTIONS)):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise OSError("no port of the loopback is free")
