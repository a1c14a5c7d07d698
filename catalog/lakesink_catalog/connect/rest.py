"""PyIceberg's REST catalog with time-outs, which its own client lacks.

A request that is accepted and never answered would block the stream for ever. Here, it ends in a
`requests.exceptions.Timeout`. For a commit, the result is then *unknown*: the next attempt reads the table.
"""

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from typing import Any, TypeVar

from pyiceberg.catalog import TOKEN, WAREHOUSE_LOCATION
from pyiceberg.catalog.rest import Endpoint, Endpoints, HttpMethod, RestCatalog
from pyiceberg.catalog.rest.auth import AuthManager, AuthManagerAdapter, LegacyOAuth2AuthManager
from pyiceberg.catalog.rest.response import _handle_non_200_response
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.table import CommitTableRequest, CommitTableResponse, Table, TableIdentifier
from pyiceberg.table.update import AddSchemaUpdate, TableRequirement, TableUpdate
from requests import PreparedRequest, Response, Session
from requests.adapters import BaseAdapter
from requests.exceptions import HTTPError, ReadTimeout

from lakesink_catalog.connect.kinds import READING
from lakesink_protocol.errors import SettingsError

TIMEOUT_PROPERTY = "lakesink.http-timeout-seconds"
DEFAULT_TIMEOUT_SECONDS = 60.0
CONNECT_TIMEOUT_SECONDS = 10.0
WAITS_AN_ANSWER = 5
"""Time limit for a complete answer, as a multiple of the time-out: large metadata on a slow line takes long."""
_MULTI_TABLE = Endpoint(http_method=HttpMethod.POST, path="/v1/{prefix}/transactions/commit")
_COMMIT_ERRORS: dict[int, type[Exception]] = {
    409: CommitFailedException,
    **dict.fromkeys((500, 502, 504), CommitStateUnknownException),
}
T = TypeVar("T")


class BoundedRestCatalog(RestCatalog):
    """`RestCatalog` with time limits for all HTTP requests and token refreshes."""

    def __init__(self, name: str, **properties: str) -> None:
        self._timeout_seconds = _timeout_seconds(properties)
        super().__init__(name, **{"rest.sigv4.max-retries": "2"} | properties)

    @property
    def commits_several_tables(self) -> bool:
        """True if the service declares that it commits several tables in one request; `lakesink certify` tests it."""
        return _MULTI_TABLE in self._supported_endpoints

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """As PyIceberg does it; a new schema also names the last column, which Nessie 0.99.0 insists on."""
        if not any(isinstance(update, AddSchemaUpdate) for update in updates):
            done: CommitTableResponse = super().commit_table(table, requirements, updates)
            return done
        *namespace, name = table.name()
        identifier = TableIdentifier(namespace=namespace, name=name)
        request = CommitTableRequest(identifier=identifier, requirements=requirements, updates=updates)
        body = json.loads(request.model_dump_json())
        for update, sent in zip(updates, body["updates"], strict=True):
            if isinstance(update, AddSchemaUpdate):
                sent["last-column-id"] = max(table.metadata.last_column_id, update.schema_.highest_field_id)
        url = self.url(Endpoints.update_table, **self._split_identifier_for_path(identifier))
        token = table.config.get(TOKEN)
        own = {"Authorization": f"Bearer {token}"} if token else {}
        return CommitTableResponse.model_validate_json(self._committed(url, body, own).text)

    def commit_tables(self, changes: Sequence[CommitTableRequest]) -> None:
        """Commit several tables in one request, for which PyIceberg has no call; each change contains its identifier.

        Raises:
            CommitFailedException: Refused.
            CommitStateUnknownException: The service failed; all, some or none may have landed.
            RESTError: Any other answer.
        """
        bodies = [json.loads(change.model_dump_json()) for change in changes]
        self._committed(self.url("transactions/commit"), {"table-changes": bodies})

    def _committed(self, url: str, body: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> Response:
        response = self._session.post(url, json=body, headers=headers)
        try:
            response.raise_for_status()
        except HTTPError as error:
            _handle_non_200_response(error, _COMMIT_ERRORS)
        return response

    def idempotency_key_lifetime(self) -> str:
        """How long the service recognizes a repeated request by its key, as an ISO 8601 duration; empty if never."""
        return str(self._configuration().json().get("idempotency-key-lifetime") or "")

    def server(self) -> str:
        """What the service calls itself in the header ``Server`` of its answers; empty if it does not."""
        return str(self._configuration().headers.get("Server", ""))

    def _configuration(self) -> Response:
        warehouse = self.properties.get(WAREHOUSE_LOCATION)
        asked = {WAREHOUSE_LOCATION: warehouse} if warehouse else {}
        response = self._session.get(self.url(Endpoints.get_config, prefixed=False), params=asked)
        response.raise_for_status()
        return response

    # PyIceberg offers no public hook to configure the session, and its constructor already uses the session.
    def _create_session(self) -> Session:
        session = super()._create_session()
        session.hooks["response"].append(_as_read)
        self._bound(session)
        manager = self._auth_manager
        if manager is not None and not isinstance(manager, LegacyOAuth2AuthManager):
            # These managers fetch tokens with their own clients; the legacy one uses the bounded session.
            self._auth_manager = _BoundedAuthManager(manager, self._timeout_seconds)
            session.auth = AuthManagerAdapter(self._auth_manager)
        return session

    def _create_legacy_oauth2_auth_manager(self, session: Session) -> AuthManager:
        self._bound(session)  # fetches a token with the session before `_create_session` gets it back
        return super()._create_legacy_oauth2_auth_manager(session)

    def _warn_oauth_tokens_deprecation(self) -> None:
        """Does not warn: PyIceberg's warning shows the URI of the service with its password."""

    def _bound(self, session: Session) -> None:
        for prefix, adapter in list(session.adapters.items()):
            if not isinstance(adapter, _BoundedAdapter):
                session.mount(prefix, _BoundedAdapter(adapter, self._timeout_seconds))


def _as_read(response: Response, **_: Any) -> Response:
    reading = READING.get()
    return response if reading is None else reading.answer(response)


class _BoundedAdapter(BaseAdapter):
    """A time-out for each wait, and one for the complete answer, because an answer could arrive byte by byte."""

    def __init__(self, inner: BaseAdapter, seconds: float) -> None:
        super().__init__()
        self._inner = inner
        self._timeout = (min(CONNECT_TIMEOUT_SECONDS, seconds), seconds)
        self._seconds = WAITS_AN_ANSWER * seconds

    def send(self, request: PreparedRequest, *args: Any, **kwargs: Any) -> Response:
        if kwargs.get("timeout") is None:
            kwargs["timeout"] = self._timeout
        late = ReadTimeout(f"no complete answer within {self._seconds:g} s")
        return within(self._seconds, lambda: self._answer(request, *args, **kwargs), late)

    def close(self) -> None:
        self._inner.close()

    def _answer(self, request: PreparedRequest, *args: Any, **kwargs: Any) -> Response:
        response = self._inner.send(request, *args, **kwargs)
        if not kwargs.get("stream"):
            _ = response.content  # read here, within the time limit; the response keeps it
        return response


class _BoundedAuthManager(AuthManager):
    def __init__(self, inner: AuthManager, seconds: float) -> None:
        self._inner = inner
        self._seconds = seconds

    def auth_header(self) -> str | None:
        return within(self._seconds, self._inner.auth_header, ReadTimeout(f"no token within {self._seconds:g} s"))


def within(seconds: float, call: Callable[[], T], late: Exception) -> T:
    """The call's result, if it comes in time; otherwise raises `late`, and the call goes on in its own thread."""
    answer: Future[T] = Future()

    def ask() -> None:
        try:
            answer.set_result(call())
        except BaseException as error:  # noqa: BLE001 - carried to the thread that asked
            answer.set_exception(error)

    threading.Thread(target=ask, daemon=True, name="lakesink-within").start()
    if not wait([answer], seconds).done:
        raise late
    return answer.result()


def _timeout_seconds(properties: Mapping[str, Any]) -> float:
    text = properties.get(TIMEOUT_PROPERTY, DEFAULT_TIMEOUT_SECONDS)
    try:
        seconds = float(text)
    except (TypeError, ValueError):
        seconds = -1.0
    if not 0 < seconds <= 3600:
        raise SettingsError.of("SETTING_INVALID.timeout", text=text)
    return seconds
