from . import catalogue as catalogue
from .catalogue import read_metrics as read_metrics
from .metric import (
    Metric as Metric,
    MetricKind as MetricKind,
    Sample as Sample,
    kafka_metric as kafka_metric,
    own_metric as own_metric,
    single as single,
)
from .metrics_absent import ABSENT as ABSENT
from .traffic import TopicTraffic as TopicTraffic
