"""Gives the numbers of `metrics` to Prometheus or OpenTelemetry. Loaded only if a user asks for it, as each client is.

Each way reads the numbers when it needs them, in a thread that is not that of a batch.
"""

import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

from lakesink.observe.metrics import METRICS, Metric, MetricKind, Numbers
from lakesink_protocol.errors import SettingsError

OPENTELEMETRY, PROMETHEUS = "otel", "prometheus"
NUMBERS = Numbers()
_ONE_AT_A_TIME = threading.Lock()
_UCUM = {"seconds": "s", "bytes": "By", "": ""}


def counting(way: str) -> Numbers:
    """The numbers of this process, which are read this way from now on.

    Raises:
        SettingsError: The client is not installed.
        OSError: The port cannot be opened.
    """
    try:
        with _ONE_AT_A_TIME:
            _offer(way)
    except ModuleNotFoundError as error:
        raise SettingsError.of("METRICS_CLIENT_MISSING", way=way, library=error.name) from None
    return NUMBERS


@lru_cache
def _offer(way: str) -> None:
    """Let a client read the numbers, once in a process; a port serves the registry of the Prometheus client."""
    if way == OPENTELEMETRY:
        to_opentelemetry(NUMBERS)
        return
    from prometheus_client import REGISTRY, start_http_server  # noqa: PLC0415 - an extra

    if way == PROMETHEUS:
        REGISTRY.register(PrometheusCollector(NUMBERS))
        return
    _offer(PROMETHEUS)
    host, _, port = way.rpartition(":")
    start_http_server(int(port), host.strip("[]"))


@dataclass(frozen=True, slots=True)
class PrometheusCollector:
    """A collector for a registry of the Prometheus client."""

    numbers: Numbers

    def collect(self) -> Iterator[Any]:
        """Each metric with its numbers, as the registry asks for them."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily  # noqa: PLC0415 - an extra

        for metric in METRICS:
            make = CounterMetricFamily if metric.kind is MetricKind.COUNTER else GaugeMetricFamily
            family = make(metric.prometheus, metric.help, labels=metric.labels)
            for labels, number in self.numbers.read(metric):
                family.add_metric(labels, number)
            yield family


def to_opentelemetry(numbers: Numbers, provider: Any = None) -> None:
    """Make instruments for the program's meter provider; without one, nobody reads them."""
    from opentelemetry.metrics import CallbackOptions, Observation, get_meter  # noqa: PLC0415 - an extra

    def observed(metric: Metric, _: CallbackOptions) -> Iterable[Observation]:
        for labels, number in numbers.read(metric):
            yield Observation(number, dict(zip(metric.labels, labels, strict=True)))

    meter = get_meter("lakesink", meter_provider=provider)
    for metric in METRICS:
        counts = metric.kind is MetricKind.COUNTER
        create = meter.create_observable_counter if counts else meter.create_observable_gauge
        create(metric.opentelemetry, [partial(observed, metric)], _UCUM[metric.unit], metric.help)
