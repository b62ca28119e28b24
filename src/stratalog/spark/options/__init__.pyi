from .data_loss import DataLossError as DataLossError, OnDataLoss as OnDataLoss, on_data_loss as on_data_loss
from .kafka import (
    BOOTSTRAP_SERVERS as BOOTSTRAP_SERVERS,
    COMMAND_CONFIG as COMMAND_CONFIG,
    with_client_properties as with_client_properties,
)
from .partition_json import TopicPartition as TopicPartition, by_topic as by_topic
from .read_options import (
    COLUMNS as COLUMNS,
    EARLIEST as EARLIEST,
    LATEST as LATEST,
    Limit as Limit,
    LimitKind as LimitKind,
    ReadOptions as ReadOptions,
)
from .reader import OptionReader as OptionReader, option_text as option_text
from .subscription import Subscription as Subscription
