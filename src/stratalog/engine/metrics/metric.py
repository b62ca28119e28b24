"""A metric: a declaration, and a function that reads its values from the live objects on request.

A metric of Kafka's is declared by its MBean. Its name follows the usual rules of the JMX exporter: lower case,
underscores for all but letters and digits, `...PerSec` a counter `..._total`:

    kafka.log:type=Log,name=Size                              kafka_log_log_size
    kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec   kafka_server_brokertopicmetrics_bytesin_total
    kafka.server:type=RLMCopy  byte-rate                      kafka_server_rlmcopy_byte_rate
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Generic, NamedTuple, TypeVar

WorldT = TypeVar("WorldT", contravariant=True)

_PER_SECOND = "PerSec"
_MBEAN = re.compile(r"(?P<domain>[\w.]+):type=(?P<type>[\w-]+)(,name=(?P<name>[\w-]+))?")


class MetricKind(Enum):
    """A counter only grows, from 0 at startup; a timer has a count and a total time."""

    GAUGE = "gauge"
    COUNTER = "counter"
    TIMER = "summary"


class Sample(NamedTuple):
    """One value. Labels with an empty value are left out, such as the topic of a sum over all topics.

    `times` is the count of a timer, whose `value` is the total time. `quantiles` are values, each with its quantile.
    """

    labels: tuple[str, ...]
    value: float
    times: int = 0
    quantiles: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Metric(Generic[WorldT]):
    """`read` receives the object that the metric describes.

    It must be quick, and must not wait for a disk or a store.
    """

    name: str
    kind: MetricKind
    help: str
    labels: tuple[str, ...]
    read: Callable[[WorldT], Iterable[Sample]]
    #: The MBean, with its attribute unless Value or Count; "" for a metric of our own.
    mbean: str = ""


def kafka_metric(
    mbean: str,
    read: Callable[[WorldT], Iterable[Sample]],
    help_text: str,
    labels: tuple[str, ...] = (),
    *,
    attribute: str = "",
    kind: MetricKind | None = None,
) -> Metric[WorldT]:
    """Declare a metric of Kafka's. `kind` follows from the name unless it is given."""
    name = exported_name(mbean, attribute)
    kind = kind or (MetricKind.COUNTER if name.endswith("_total") else MetricKind.GAUGE)
    return Metric(name, kind, help_text, labels, read, f"{mbean} {attribute}".strip())


def own_metric(
    name: str,
    read: Callable[[WorldT], Iterable[Sample]],
    help_text: str,
    labels: tuple[str, ...] = (),
    *,
    kind: MetricKind = MetricKind.GAUGE,
) -> Metric[WorldT]:
    """Declare a metric that Kafka does not have."""
    return Metric(f"stratalog_{name}", kind, help_text, labels, read)


def exported_name(mbean: str, attribute: str = "") -> str:
    """Return the exported name of an MBean; ValueError for an invalid one."""
    match = _MBEAN.fullmatch(mbean)
    if match is None:
        raise ValueError(f"{mbean} is not DOMAIN:type=TYPE,name=NAME")
    parts = [match["domain"], match["type"], match["name"] or "", attribute]
    if parts[2].endswith(_PER_SECOND):
        parts[2:] = [parts[2].removesuffix(_PER_SECOND), "total"]
    return re.sub(r"\W|-", "_", "_".join(part for part in parts if part)).lower()


def single(value: float) -> list[Sample]:
    """Return the value of a metric without labels."""
    return [Sample((), value)]
