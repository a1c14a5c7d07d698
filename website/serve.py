"""A server of the built site on this machine, for the browser and for people."""

import functools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Log nothing."""


@contextmanager
def served(folder: Path, port: int = 0) -> Iterator[str]:
    """The address of a server of the folder, which ends with the block. Port 0: any free one."""
    with ThreadingHTTPServer(("127.0.0.1", port), functools.partial(_Quiet, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()
