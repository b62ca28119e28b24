from .broker import (
    BrokerStreamWriter as BrokerStreamWriter,
)
from .broker import (
    BrokerWriter as BrokerWriter,
)
from .broker_options import (
    BrokerSinkOptions as BrokerSinkOptions,
)
from .broker_options import (
    goes_through_brokers as goes_through_brokers,
)
from .options import (
    NumberedBatch as NumberedBatch,
)
from .options import (
    SinkOptions as SinkOptions,
)
from .options import (
    stream_name as stream_name,
)
from .plan import (
    BulkTaskResult as BulkTaskResult,
)
from .writer import (
    BulkStreamWriter as BulkStreamWriter,
)
from .writer import (
    BulkWriter as BulkWriter,
)
from .writer import (
    StagedWrite as StagedWrite,
)
from .writer import (
    WriteTarget as WriteTarget,
)
from .writer import (
    target_of as target_of,
)
