from .advice import broker_advice as broker_advice, minimum_advice as minimum_advice, topic_advice as topic_advice
from .broker import BROKER_KEYS as BROKER_KEYS, BrokerConfig as BrokerConfig
from .broker_keys.coordinators import CLIENT_METRICS_SINK as CLIENT_METRICS_SINK
from .broker_keys.own import (
    INITIAL_METADATA_VERSION as INITIAL_METADATA_VERSION,
    SLOW_CALLBACK_MS as SLOW_CALLBACK_MS,
)
from .client_metrics import (
    ALL_METRICS as ALL_METRICS,
    CLIENT_METRICS_KEYS as CLIENT_METRICS_KEYS,
    DEFAULT_INTERVAL_MS as DEFAULT_INTERVAL_MS,
    ClientMetricsConfig as ClientMetricsConfig,
)
from .group import (
    DEAD_LETTER_TOPIC as DEAD_LETTER_TOPIC,
    GROUP_KEYS as GROUP_KEYS,
    INTERNAL_GROUP_KEYS as INTERNAL_GROUP_KEYS,
    GroupConfig as GroupConfig,
    check_group_configs as check_group_configs,
    group_default as group_default,
    offset_reset_duration_ms as offset_reset_duration_ms,
    parse_group_configs as parse_group_configs,
)
from .jaas import jaas_module as jaas_module, jaas_options as jaas_options
from .kafka_keys import kafka_broker_keys as kafka_broker_keys
from .keys import (
    AUTHORIZER as AUTHORIZER,
    STANDARD_AUTHORIZER as STANDARD_AUTHORIZER,
    ConfigKey as ConfigKey,
    ConfigType as ConfigType,
    invalid as invalid,
)
from .listeners import (
    ADVERTISED as ADVERTISED,
    DYNAMIC_TLS_KEYS as DYNAMIC_TLS_KEYS,
    LISTENERS as LISTENERS,
    PLAINTEXT as PLAINTEXT,
    SASL_PLAINTEXT as SASL_PLAINTEXT,
    SASL_SSL as SASL_SSL,
    SSL as SSL,
    NamedListener as NamedListener,
    client_listeners as client_listeners,
    inter_broker_listener as inter_broker_listener,
    key_of_listener as key_of_listener,
    listener_prefix as listener_prefix,
    listener_settings as listener_settings,
    parse_listeners as parse_listeners,
)
from .metadata_version import (
    INITIAL_LEVEL as INITIAL_LEVEL,
    LARGE_SEGMENTS_LEVEL as LARGE_SEGMENTS_LEVEL,
    LEVEL_MAX as LEVEL_MAX,
    LEVEL_MIN as LEVEL_MIN,
    METADATA_VERSION as METADATA_VERSION,
    is_large_index_format_supported as is_large_index_format_supported,
    is_supported as is_supported,
    level_for_release as level_for_release,
    level_name as level_name,
    lost_by_downgrade as lost_by_downgrade,
)
from .no_effect import IgnoredSetting as IgnoredSetting, ignored_settings as ignored_settings
from .other_features import (
    GROUP_VERSION as GROUP_VERSION,
    OTHER_FEATURES as OTHER_FEATURES,
    SHARE_VERSION as SHARE_VERSION,
    STREAMS_VERSION as STREAMS_VERSION,
    TRANSACTION_VERSION as TRANSACTION_VERSION,
    level_with as level_with,
)
from .properties_file import parse_properties as parse_properties
from .segment_size import segment_bytes_max as segment_bytes_max
from .stored_topic import (
    StoredConfig as StoredConfig,
    conflict_warning as conflict_warning,
    stored_config as stored_config,
    topic_default_properties as topic_default_properties,
)
from .topic import (
    LOCAL_RETENTION_SAME as LOCAL_RETENTION_SAME,
    PRODUCE_VALIDATION as PRODUCE_VALIDATION,
    TOPIC_KEYS as TOPIC_KEYS,
    LogConfig as LogConfig,
    changed_properties as changed_properties,
    index_size_needed as index_size_needed,
)
from .unkept import asks_for as asks_for, joins_cluster as joins_cluster, refuse_unkept as refuse_unkept
