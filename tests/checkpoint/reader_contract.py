"""What each reader of a checkpoint's files is checked for: through the driver's JVM, and without one."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from lakesink.checkpoint.folder import CheckpointFiles

Reader = Callable[[Path], CheckpointFiles]


def fill(root: Path, files: Mapping[str, str | bytes]) -> Path:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return root


class ReaderContract:
    """Subclasses have a fixture `reader`."""

    def test_readers_agree_on_what_is_there_and_what_is_not(self, reader: Reader, tmp_path: Path) -> None:
        files = reader(fill(tmp_path / "check point", {"a/b": bytes(range(256)), "a/c": ""}))
        assert files.read("a/b") == bytes(range(256))
        assert files.read("a/c") == b""
        assert files.read("a/missing") is None
        assert files.read_range("a/b", 10, 5) == bytes(range(10, 15))
        assert files.size_bytes("a/b") == 256
        assert files.size_bytes("a/missing") is None
        assert sorted(name for name in files.names("a") if not name.startswith(".")) == ["b", "c"]
        assert files.names("missing") == []

    @pytest.mark.parametrize("name", ["a.json", "a b.json", "a%20b.json", "a::b.json"])
    def test_readers_agree_that_an_input_file_is_there_whatever_its_name(
        self, reader: Reader, tmp_path: Path, name: str
    ) -> None:
        files = reader(fill(tmp_path, {name: "{}"}))
        assert files.is_there(f"file://{tmp_path}/{name}")
        assert not files.is_there(f"file://{tmp_path}/{name}x")

    def test_a_file_written_after_a_listing_is_seen(self, reader: Reader, tmp_path: Path) -> None:
        files = reader(fill(tmp_path, {"a/b": "1"}))
        assert files.names("a") == ["b"]
        fill(tmp_path, {"a/c": "2"})
        assert files.read("a/c") == b"2"
        assert sorted(files.names("a")) == ["b", "c"]
