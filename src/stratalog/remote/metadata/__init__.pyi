from .cache import epoch_end_offset as epoch_end_offset
from .log import EventsRead as EventsRead, MetadataLog as MetadataLog
from .partitioner import metadata_partition as metadata_partition
from .serde import decode as decode, encode as encode
from .snapshot import SNAPSHOT_FILE as SNAPSHOT_FILE
from .topic_based import TopicBasedRemoteLogMetadataManager as TopicBasedRemoteLogMetadataManager
