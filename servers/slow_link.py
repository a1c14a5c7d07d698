"""A link on loopback to a server that is far away: each answer begins some milliseconds later.

It passes bytes on and knows no protocol: the first bytes that a server sends after a client's are held back.
Connections wait beside one another, as over a real distance.
"""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from servers.ports import free_port

PATIENCE_SECONDS = 10
_CHUNK = 2**18


@contextmanager
def slow_link(port: int, milliseconds: int) -> Iterator[int]:
    """A link to a port of this machine, in a process of its own, which ends with the block.

    Returns:
        The port of its near end.
    """
    near = free_port()
    call = [sys.executable, "-m", "servers.slow_link", str(near), str(port), str(milliseconds)]
    with subprocess.Popen(call, cwd=Path(__file__).parent.parent, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            if process.stdout.readline().strip() != b"ready":
                raise RuntimeError(f"no link to port {port}")
            yield near
        finally:
            process.terminate()


async def serve(near: int, far: int, milliseconds: int) -> None:
    """Pass on until the process ends."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers, requests = await asyncio.open_connection("127.0.0.1", far)
        asked = asyncio.Event()
        both = [
            asyncio.create_task(_pass_on(reader, requests, asked, 0)),
            asyncio.create_task(_pass_on(answers, writer, asked, milliseconds / 1000)),
        ]
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        for task in both:
            task.cancel()
        for end in (writer, requests):
            end.close()

    server = await asyncio.start_server(connected, "127.0.0.1", near)
    print("ready", flush=True)
    await server.serve_forever()


async def _pass_on(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: asyncio.Event, seconds: float
) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(_CHUNK):
            if not seconds:
                asked.set()
            elif asked.is_set():
                asked.clear()
                await asyncio.sleep(seconds)
            writer.write(data)
            await writer.drain()


if __name__ == "__main__":
    asyncio.run(serve(*map(int, sys.argv[1:])))
