"""Files of a checkpoint through the driver's JVM, with Spark's schemes and credentials. Never writes Spark's files."""

from collections.abc import Callable
from contextlib import closing
from typing import Any

from py4j.protocol import Py4JJavaError


class HadoopFiles:
    """Files of a checkpoint through the driver's JVM; `root` is the full URI that Spark resolved."""

    def __init__(self, session: Any, root: str) -> None:
        hadoop, self._conf = hadoop_of(session)
        self._root = root
        self._path = hadoop.Path
        self._all_bytes = session.sparkContext._jvm.org.apache.commons.io.IOUtils.toByteArray
        self._system = self._path(root).getFileSystem(self._conf)

    def read(self, path: str) -> bytes | None:
        stream = _unless_missing(self._system.open, self._at(path))
        if stream is None:
            return None
        with closing(stream):
            return bytes(self._all_bytes(stream))

    def size_bytes(self, path: str) -> int | None:
        status = _unless_missing(self._system.getFileStatus, self._at(path))
        return None if status is None else int(status.getLen())

    def read_range(self, path: str, start: int, length: int) -> bytes:
        with closing(self._system.open(self._at(path))) as stream:
            stream.seek(start)
            return bytes(self._all_bytes(stream, length))

    def names(self, folder: str) -> list[str]:
        found = _unless_missing(self._system.listStatus, self._at(folder))
        return [status.getPath().getName() for status in found or ()]

    def is_there(self, uri: str) -> bool:
        path = self._path(uri)
        return bool(path.getFileSystem(self._conf).exists(path))

    def replace(self, path: str, data: bytes) -> None:
        """Create or overwrite a file, with its parent folders."""
        with closing(self._system.create(self._at(path), True)) as stream:  # noqa: FBT003 - Hadoop's own signature
            stream.write(data)

    def _at(self, path: str) -> Any:
        return self._path(f"{self._root}/{path}")


def hadoop_of(session: Any) -> tuple[Any, Any]:
    """Hadoop's package of file systems in the driver's JVM, and its configuration in a session."""
    package = session.sparkContext._jvm.org.apache.hadoop.fs  # PySpark has no public API for it
    return package, session._jsparkSession.sessionState().newHadoopConf()


def _unless_missing(ask: Callable[[Any], Any], path: Any) -> Any:
    """The result of the call; None if the path does not exist."""
    try:
        return ask(path)
    except Py4JJavaError as error:
        if "FileNotFoundException" in str(error.java_exception.getClass().getName()):
            return None
        raise
