from .advice import (
    broker_advice as broker_advice,
)
from .advice import (
    minimum_advice as minimum_advice,
)
from .advice import (
    topic_advice as topic_advice,
)
from .broker import (
    BROKER_KEYS as BROKER_KEYS,
)
from .broker import (
    CLIENT_METRICS_SINK as CLIENT_METRICS_SINK,
)
from .broker import (
    INITIAL_METADATA_VERSION as INITIAL_METADATA_VERSION,
)
from .broker import (
    SLOW_CALLBACK_MS as SLOW_CALLBACK_MS,
)
from .broker import (
    BrokerConfig as BrokerConfig,
)
from .client_metrics import (
    ALL_METRICS as ALL_METRICS,
)
from .client_metrics import (
    CLIENT_METRICS_KEYS as CLIENT_METRICS_KEYS,
)
from .client_metrics import (
    DEFAULT_INTERVAL_MS as DEFAULT_INTERVAL_MS,
)
from .client_metrics import (
    ClientMetricsConfig as ClientMetricsConfig,
)
from .group import (
    GROUP_KEYS as GROUP_KEYS,
)
from .group import (
    INTERNAL_GROUP_KEYS as INTERNAL_GROUP_KEYS,
)
from .group import (
    GroupConfig as GroupConfig,
)
from .group import (
    check_group_configs as check_group_configs,
)
from .group import (
    group_default as group_default,
)
from .group import (
    offset_reset_duration_ms as offset_reset_duration_ms,
)
from .group import (
    parse_group_configs as parse_group_configs,
)
from .jaas import (
    jaas_module as jaas_module,
)
from .jaas import (
    jaas_options as jaas_options,
)
from .kafka_keys import (
    kafka_broker_keys as kafka_broker_keys,
)
from .keys import (
    AUTHORIZER as AUTHORIZER,
)
from .keys import (
    STANDARD_AUTHORIZER as STANDARD_AUTHORIZER,
)
from .keys import (
    ConfigKey as ConfigKey,
)
from .keys import (
    ConfigType as ConfigType,
)
from .keys import (
    invalid as invalid,
)
from .listeners import (
    ADVERTISED as ADVERTISED,
)
from .listeners import (
    DYNAMIC_TLS_KEYS as DYNAMIC_TLS_KEYS,
)
from .listeners import (
    LISTENERS as LISTENERS,
)
from .listeners import (
    PLAINTEXT as PLAINTEXT,
)
from .listeners import (
    SASL_PLAINTEXT as SASL_PLAINTEXT,
)
from .listeners import (
    SASL_SSL as SASL_SSL,
)
from .listeners import (
    SSL as SSL,
)
from .listeners import (
    NamedListener as NamedListener,
)
from .listeners import (
    client_listeners as client_listeners,
)
from .listeners import (
    inter_broker_listener as inter_broker_listener,
)
from .listeners import (
    key_of_listener as key_of_listener,
)
from .listeners import (
    listener_prefix as listener_prefix,
)
from .listeners import (
    listener_settings as listener_settings,
)
from .listeners import (
    parse_listeners as parse_listeners,
)
from .metadata_version import (
    INITIAL_LEVEL as INITIAL_LEVEL,
)
from .metadata_version import (
    LARGE_SEGMENTS_LEVEL as LARGE_SEGMENTS_LEVEL,
)
from .metadata_version import (
    LEVEL_MAX as LEVEL_MAX,
)
from .metadata_version import (
    LEVEL_MIN as LEVEL_MIN,
)
from .metadata_version import (
    METADATA_VERSION as METADATA_VERSION,
)
from .metadata_version import (
    is_large_index_format_supported as is_large_index_format_supported,
)
from .metadata_version import (
    is_supported as is_supported,
)
from .metadata_version import (
    level_for_release as level_for_release,
)
from .metadata_version import (
    level_name as level_name,
)
from .metadata_version import (
    lost_by_downgrade as lost_by_downgrade,
)
from .other_features import (
    GROUP_VERSION as GROUP_VERSION,
)
from .other_features import (
    OTHER_FEATURES as OTHER_FEATURES,
)
from .other_features import (
    SHARE_VERSION as SHARE_VERSION,
)
from .other_features import (
    STREAMS_VERSION as STREAMS_VERSION,
)
from .other_features import (
    TRANSACTION_VERSION as TRANSACTION_VERSION,
)
from .other_features import (
    level_with as level_with,
)
from .properties_file import (
    parse_properties as parse_properties,
)
from .segment_size import (
    segment_bytes_max as segment_bytes_max,
)
from .stored_topic import (
    StoredConfig as StoredConfig,
)
from .stored_topic import (
    stored_config as stored_config,
)
from .stored_topic import (
    topic_default_properties as topic_default_properties,
)
from .topic import (
    LOCAL_RETENTION_SAME as LOCAL_RETENTION_SAME,
)
from .topic import (
    PRODUCE_VALIDATION as PRODUCE_VALIDATION,
)
from .topic import (
    TOPIC_KEYS as TOPIC_KEYS,
)
from .topic import (
    LogConfig as LogConfig,
)
from .topic import (
    changed_properties as changed_properties,
)
from .topic import (
    index_size_needed as index_size_needed,
)
from .unkept import (
    asks_for as asks_for,
)
from .unkept import (
    joins_cluster as joins_cluster,
)
from .unkept import (
    refuse_unkept as refuse_unkept,
)
