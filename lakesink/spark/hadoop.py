"""Files of a checkpoint through the driver's JVM, with Spark's schemes and credentials. Never writes Spark's files."""

from typing import Any

from py4j.protocol import Py4JJavaError


class HadoopFiles:
    """Files of a checkpoint through the driver's JVM; `root` is the full URI that Spark resolved."""

    def __init__(self, session: Any, root: str) -> None:
        jvm = session.sparkContext._jvm  # noqa: SLF001 - PySpark has no public way to Hadoop's file systems
        self._root = root
        self._path = jvm.org.apache.hadoop.fs.Path
        self._all_bytes = jvm.org.apache.commons.io.IOUtils.toByteArray
        self._conf = session._jsparkSession.sessionState().newHadoopConf()  # noqa: SLF001 - as above
        self._system = self._path(root).getFileSystem(self._conf)

    def read(self, path: str) -> bytes | None:
        """See `CheckpointFiles`."""
        try:
            stream = self._system.open(self._at(path))
        except Py4JJavaError as error:
            if _is_missing(error):
                return None
            raise
        try:
            return bytes(self._all_bytes(stream))
        finally:
            stream.close()

    def size_bytes(self, path: str) -> int | None:
        """See `CheckpointFiles`."""
        try:
            return int(self._system.getFileStatus(self._at(path)).getLen())
        except Py4JJavaError as error:
            if _is_missing(error):
                return None
            raise

    def read_range(self, path: str, start: int, length: int) -> bytes:
        """See `CheckpointFiles`."""
        stream = self._system.open(self._at(path))
        try:
            stream.seek(start)
            return bytes(self._all_bytes(stream, length))
        finally:
            stream.close()

    def names(self, folder: str) -> list[str]:
        """See `CheckpointFiles`."""
        try:
            return [status.getPath().getName() for status in self._system.listStatus(self._at(folder))]
        except Py4JJavaError as error:
            if _is_missing(error):
                return []
            raise

    def is_there(self, uri: str) -> bool:
        """See `CheckpointFiles`."""
        path = self._path(uri)
        return bool(path.getFileSystem(self._conf).exists(path))

    def replace(self, path: str, data: bytes) -> None:
        """Create or overwrite a file, with its parent folders."""
        stream = self._system.create(self._at(path), True)  # noqa: FBT003 - Hadoop's own signature
        try:
            stream.write(data)
        finally:
            stream.close()

    def _at(self, path: str) -> Any:
        return self._path(f"{self._root}/{path}")


def _is_missing(error: Py4JJavaError) -> bool:
    return "FileNotFoundException" in str(error.java_exception.getClass().getName())
