"""A metric: a declaration, and a function that reads its values off the live objects on request.

A metric of Kafka's is declared by its MBean; its name here is what the usual rules of the JMX exporter make of that:
lower case, everything that is no letter or digit an underscore, `...PerSec` a counter `..._total`:

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
    """A counter only grows, from 0 at the start of the broker; a timer is how often and how long in all."""

    GAUGE = "gauge"
    COUNTER = "counter"
    TIMER = "summary"


class Sample(NamedTuple):
    """One value. A label without a value ("") is left out: so is the topic of what is counted over all topics.

    `times` is how often, for a timer, whose `value` is the sum of what it took. `quantiles` are values of it, each with
    its quantile.
    """

    labels: tuple[str, ...]
    value: float
    times: int = 0
    quantiles: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Metric(Generic[WorldT]):
    """`read` is given the object that the metric is about.

    It must be quick, and must not wait for a disk or a store.
    """

    name: str
    kind: MetricKind
    help: str
    labels: tuple[str, ...]
    read: Callable[[WorldT], Iterable[Sample]]
    #: The MBean, and its attribute where that is not Value or Count; "" for a metric of our own.
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
    """One of Kafka's; `kind` follows from the name unless it is given."""
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
    """One that Kafka has not."""
    return Metric(f"stratalog_{name}", kind, help_text, labels, read)


def exported_name(mbean: str, attribute: str = "") -> str:
    """See the module; ValueError for what is no MBean of Kafka's shape."""
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
