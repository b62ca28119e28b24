from . import (
    catalogue as catalogue,
)
from .catalogue import (
    read_metrics as read_metrics,
)
from .metric import (
    Metric as Metric,
)
from .metric import (
    MetricKind as MetricKind,
)
from .metric import (
    Sample as Sample,
)
from .metric import (
    kafka_metric as kafka_metric,
)
from .metric import (
    own_metric as own_metric,
)
from .metric import (
    single as single,
)
from .metrics_absent import (
    ABSENT as ABSENT,
)
from .traffic import (
    TopicTraffic as TopicTraffic,
)
