from .broker import BrokerStreamWriter as BrokerStreamWriter, BrokerWriter as BrokerWriter
from .broker_options import BrokerSinkOptions as BrokerSinkOptions, goes_through_brokers as goes_through_brokers
from .options import NumberedBatch as NumberedBatch, SinkOptions as SinkOptions, stream_name as stream_name
from .plan import BulkTaskResult as BulkTaskResult
from .writer import (
    BulkStreamWriter as BulkStreamWriter,
    BulkWriter as BulkWriter,
    StagedWrite as StagedWrite,
    WriteTarget as WriteTarget,
    target_of as target_of,
)
