"""Puts a bug into this process, before the module is imported. No file changes."""

import ast
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path, PurePath
from types import CodeType, ModuleType

from proof.one_line_bugs.draw import Bug, changed

FOLDERS_OF_PACKAGES = ("catalog", "protocol", "tools")


def put_in(bug: Bug, root: Path) -> None:
    """The next import of the module has the bug."""
    file = root / bug.file
    module = module_of(bug.file)
    assert module not in sys.modules, f"{module} is imported already"
    sys.meta_path.insert(0, _Finder(module, file, changed(bug, file.read_text())))


def module_of(file: str) -> str:
    """The name of the module in a file of the repository."""
    parts = PurePath(file).with_suffix("").parts
    parts = parts[1:] if parts[0] in FOLDERS_OF_PACKAGES else parts
    return ".".join(parts).removesuffix(".__init__")


class _Loader(SourceFileLoader):
    def __init__(self, module: str, file: Path, tree: ast.Module) -> None:
        super().__init__(module, str(file))
        self.tree = tree

    def get_code(self, fullname: str) -> CodeType:  # noqa: ARG002 - the signature is Python's
        return compile(self.tree, self.path, "exec", dont_inherit=True)


class _Finder(MetaPathFinder):
    def __init__(self, module: str, file: Path, tree: ast.Module) -> None:
        self.module, self.file, self.loader = module, file, _Loader(module, file, tree)

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,  # noqa: ARG002 - the signature is Python's
        target: ModuleType | None = None,  # noqa: ARG002 - the same
        /,
    ) -> ModuleSpec | None:
        if fullname != self.module:
            return None
        return spec_from_file_location(fullname, self.file, loader=self.loader)
