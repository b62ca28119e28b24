from .data_loss import (
    DataLossError as DataLossError,
)
from .data_loss import (
    OnDataLoss as OnDataLoss,
)
from .data_loss import (
    on_data_loss as on_data_loss,
)
from .kafka import (
    BOOTSTRAP_SERVERS as BOOTSTRAP_SERVERS,
)
from .kafka import (
    COMMAND_CONFIG as COMMAND_CONFIG,
)
from .kafka import (
    with_client_properties as with_client_properties,
)
from .partition_json import (
    TopicPartition as TopicPartition,
)
from .partition_json import (
    by_topic as by_topic,
)
from .read_options import (
    COLUMNS as COLUMNS,
)
from .read_options import (
    EARLIEST as EARLIEST,
)
from .read_options import (
    LATEST as LATEST,
)
from .read_options import (
    Limit as Limit,
)
from .read_options import (
    LimitKind as LimitKind,
)
from .read_options import (
    ReadOptions as ReadOptions,
)
from .reader import (
    OptionReader as OptionReader,
)
from .reader import (
    option_text as option_text,
)
from .subscription import (
    Subscription as Subscription,
)
