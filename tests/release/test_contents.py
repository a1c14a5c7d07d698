"""What is published is the packages and nothing else, and a file too many or too few is found."""

import tarfile
import zipfile
from email.parser import HeaderParser
from pathlib import Path

import pytest

from release.build import Built, build
from release.contents import files_in_sdist, files_in_wheel, findings
from release.tree import ROOT, files_of_packages, packages, project, version


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return build(tmp_path_factory.mktemp("dist"))


def test_wheel_and_sdist_have_the_files_of_the_packages_and_no_others(built: Built) -> None:
    assert findings(built) == []
    assert built.wheel.name == f"lakesink-{version()}-py3-none-any.whl"
    assert built.sdist.name == f"lakesink-{version()}.tar.gz"


def test_neither_has_a_folder_that_only_developers_need(built: Built) -> None:
    names = [Path(name) for name in files_in_wheel(built.wheel) | files_in_sdist(built.sdist)]
    folders = {name.parts[0] for name in names if len(name.parts) > 1}
    others = {"benchmarks", "docs", "examples", "proof", "release", "scripts", "servers", "testkit", "tests"}
    assert [name for name in others if not (ROOT / name).is_dir()] == []
    assert folders & others == set()


def test_both_have_the_licence_and_say_which_it_is(built: Built) -> None:
    licence = f"lakesink-{version()}.dist-info/licenses/LICENSE"
    with zipfile.ZipFile(built.wheel) as wheel, tarfile.open(built.sdist) as sdist:
        packed = sdist.extractfile(f"lakesink-{version()}/LICENSE")
        assert packed is not None
        assert packed.read() == wheel.read(licence) == (ROOT / "LICENSE").read_bytes()
        said = HeaderParser().parsestr(wheel.read(f"lakesink-{version()}.dist-info/METADATA").decode())
    assert said["License-Expression"] == "Apache-2.0"
    assert said.get_all("License-File") == ["LICENSE"]


def test_the_metadata_name_every_extra_and_the_oldest_python(built: Built) -> None:
    with zipfile.ZipFile(built.wheel) as wheel:
        said = HeaderParser().parsestr(wheel.read(f"lakesink-{version()}.dist-info/METADATA").decode())
    assert said["Version"] == version()
    assert said["Requires-Python"] == project()["requires-python"]
    assert said.get_all("Provides-Extra") == list(project()["optional-dependencies"])
    assert said["Description-Content-Type"] == "text/markdown"


def test_a_file_too_many_and_a_file_too_few_are_found(built: Built, tmp_path: Path) -> None:
    changed = tmp_path / built.wheel.name
    with zipfile.ZipFile(built.wheel) as whole, zipfile.ZipFile(changed, "w") as other:
        for name in whole.namelist():
            if name != "lakesink/py.typed":
                other.writestr(name, whole.read(name))
        other.writestr("tests/__init__.py", "")

    assert findings(Built(built.sdist, changed)) == [
        f"{changed.name} lacks lakesink/py.typed.",
        f"{changed.name} has tests/__init__.py, which is not part of it.",
    ]


@pytest.mark.parametrize("package", packages())
def test_every_package_is_marked_as_typed(package: str) -> None:
    assert f"{package}/py.typed" in files_of_packages()
