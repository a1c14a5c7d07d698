"""One catalog for all tests of the readers: every test has tables of its own in it."""

import pytest

from tests.readers.lake import Lake


@pytest.fixture(scope="session")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return Lake(tmp_path_factory.mktemp("readers"))
