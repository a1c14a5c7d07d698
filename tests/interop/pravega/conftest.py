"""One Pravega for all tests of this room, and a stream for each."""

import sys
from collections.abc import Iterator

import pytest

from servers.pravega import PravegaServer, client_folder, has_client, pravega

if has_client():
    sys.path.append(str(client_folder()))  # not installed in the environment: there is one wheel for all


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PravegaServer]:
    with pravega(tmp_path_factory.mktemp("pravega")) as running:
        yield running
