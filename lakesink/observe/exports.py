"""Gives the numbers of `metrics` to Prometheus or OpenTelemetry. Nothing of it is loaded unless a user asks for it.

Each way reads the numbers when it needs them, in a thread that is not that of a batch.
"""

import threading
from collections.abc import Iterable, Iterator
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from lakesink.settings.options import read_variable
from lakesink_protocol import events
from lakesink_protocol.errors import SettingsError
from lakesink_protocol.redact import describe

if TYPE_CHECKING:
    from lakesink.observe.metrics import Metric, Numbers

VARIABLE = "LAKESINK_METRICS"
OPENTELEMETRY, PROMETHEUS = "otel", "prometheus"
_ONE_AT_A_TIME = threading.Lock()
_UCUM = {"seconds": "s", "bytes": "By", "": ""}


def measured(
    listeners: events.Listeners, table: str, sink: str, branch: str = "", *, metrics: str | None = None
) -> events.Listeners:
    """These listeners, and one that counts, if the option or the environment says who reads the numbers.

    Raises:
        SettingsError: The variable is malformed, or the client is not installed.
    """
    way = metrics or read_variable("metrics", VARIABLE)
    if way is None:
        return listeners
    try:
        return listeners.also(counting(way).stream(table, sink, branch))
    except OSError as error:
        listeners(events.MetricsNotServed(way, describe(error)))
        return listeners


def counting(way: str) -> "Numbers":
    """The numbers of this process, which are read this way from now on.

    Raises:
        SettingsError: The client is not installed.
        OSError: The port cannot be opened.
    """
    try:
        with _ONE_AT_A_TIME:
            numbers = _numbers()
            _offer(numbers, way)
        return numbers
    except ModuleNotFoundError as error:
        missing = str(error.name)
    raise SettingsError.of("METRICS_CLIENT_MISSING", way=way, library=missing)


@lru_cache(maxsize=1)
def _numbers() -> "Numbers":
    from lakesink.observe.metrics import Numbers  # noqa: PLC0415 - only who counts loads it

    return Numbers()


@lru_cache
def _offer(numbers: "Numbers", way: str) -> None:
    """Let a client read the numbers, once in a process."""
    if way == OPENTELEMETRY:
        to_opentelemetry(numbers)
        return
    _to_prometheus(numbers)
    if way != PROMETHEUS:
        from prometheus_client import start_http_server  # noqa: PLC0415 - an extra

        host, _, port = way.rpartition(":")
        start_http_server(int(port), host.strip("[]"))


@lru_cache
def _to_prometheus(numbers: "Numbers") -> None:
    from prometheus_client import REGISTRY  # noqa: PLC0415 - an extra

    REGISTRY.register(prometheus_collector(numbers))


def prometheus_collector(numbers: "Numbers") -> Any:
    """A collector for a registry of the Prometheus client."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily  # noqa: PLC0415 - an extra

    from lakesink.observe.metrics import METRICS, MetricKind  # noqa: PLC0415 - as above

    class Families:
        def collect(self) -> Iterator[Any]:
            for metric in METRICS:
                make = CounterMetricFamily if metric.kind is MetricKind.COUNTER else GaugeMetricFamily
                family = make(metric.prometheus, metric.help, labels=metric.labels)
                for labels, number in numbers.read(metric):
                    family.add_metric(labels, number)
                yield family

    return Families()


def to_opentelemetry(numbers: "Numbers", provider: Any = None) -> None:
    """Make instruments for the program's meter provider; without one, nobody reads them."""
    from opentelemetry.metrics import CallbackOptions, Observation, get_meter  # noqa: PLC0415 - an extra

    from lakesink.observe.metrics import METRICS, MetricKind  # noqa: PLC0415 - as above

    def observed(metric: "Metric", _: CallbackOptions) -> Iterable[Observation]:
        for labels, number in numbers.read(metric):
            yield Observation(number, dict(zip(metric.labels, labels, strict=True)))

    meter = get_meter("lakesink", meter_provider=provider)
    for metric in METRICS:
        counts = metric.kind is MetricKind.COUNTER
        create = meter.create_observable_counter if counts else meter.create_observable_gauge
        create(metric.opentelemetry, [partial(observed, metric)], _UCUM[metric.unit], metric.help)
