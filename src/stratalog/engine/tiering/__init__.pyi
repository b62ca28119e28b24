from .metadata_topic_settings import (
    PARTITIONS_KEY as PARTITIONS_KEY,
    REMOTE_LOG_METADATA_TOPIC as REMOTE_LOG_METADATA_TOPIC,
    metadata_topic_configs as metadata_topic_configs,
)
from .tier_status import status_json as status_json, tier_statuses as tier_statuses
from .tier_switch import NEVER_TIERED as NEVER_TIERED, allowed_config as allowed_config, tier as tier
from .tiering import start_tiering as start_tiering
