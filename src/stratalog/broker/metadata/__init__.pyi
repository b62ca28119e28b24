from .advice import (
    small_broker_index_warnings as small_broker_index_warnings,
)
from .advice import (
    small_index_warnings as small_index_warnings,
)
from .advice import (
    small_segment_warnings as small_segment_warnings,
)
from .alter_configs import (
    BROKER as BROKER,
)
from .alter_configs import (
    BROKER_LOGGER as BROKER_LOGGER,
)
from .alter_configs import (
    CLIENT_METRICS as CLIENT_METRICS,
)
from .alter_configs import (
    GROUP as GROUP,
)
from .alter_configs import (
    TOPIC as TOPIC,
)
from .alter_configs import (
    alter as alter,
)
from .alter_configs import (
    answer_each as answer_each,
)
from .alter_configs import (
    check_resource_type as check_resource_type,
)
from .cluster_metadata import (
    ClusterControl as ClusterControl,
)
from .cluster_metadata import (
    ClusterMetadata as ClusterMetadata,
)
from .cluster_metadata import (
    ProducerIdSource as ProducerIdSource,
)
from .config_changes import (
    Operation as Operation,
)
from .config_changes import (
    changed_broker_configs as changed_broker_configs,
)
from .config_changes import (
    changed_resource_configs as changed_resource_configs,
)
from .config_changes import (
    changed_topic_configs as changed_topic_configs,
)
from .config_changes import (
    check_topic_configs as check_topic_configs,
)
from .config_changes import (
    is_tiered as is_tiered,
)
from .config_changes import (
    parse_changes as parse_changes,
)
from .config_entries import (
    BrokerLevels as BrokerLevels,
)
from .config_entries import (
    ConfigEntry as ConfigEntry,
)
from .config_entries import (
    ConfigSource as ConfigSource,
)
from .config_entries import (
    TopicDescriber as TopicDescriber,
)
from .config_entries import (
    broker_entries as broker_entries,
)
from .config_entries import (
    client_metrics_entries as client_metrics_entries,
)
from .config_entries import (
    cluster_entries as cluster_entries,
)
from .config_entries import (
    group_entries as group_entries,
)
from .document import (
    document_bytes as document_bytes,
)
from .document import (
    document_problems as document_problems,
)
from .document import (
    export_document as export_document,
)
from .document import (
    import_document as import_document,
)
from .document import (
    parse_document as parse_document,
)
from .dynamic_configs import (
    InForce as InForce,
)
from .dynamic_configs import (
    check_rules as check_rules,
)
from .dynamic_configs import (
    in_force as in_force,
)
from .features import (
    FeatureUpdate as FeatureUpdate,
)
from .features import (
    UpgradeType as UpgradeType,
)
from .features import (
    check_update as check_update,
)
from .logger_levels import (
    alter_loggers as alter_loggers,
)
from .logger_levels import (
    logger_entries as logger_entries,
)
from .store import (
    FinalizedFeatures as FinalizedFeatures,
)
from .store import (
    MetadataStore as MetadataStore,
)
from .store import (
    ProducerIdBlock as ProducerIdBlock,
)
from .store import (
    Topic as Topic,
)
from .store_file import (
    STORE_FILE as STORE_FILE,
)
from .topic_map import (
    TopicMap as TopicMap,
)
from .topic_requests import (
    Assignment as Assignment,
)
from .topic_requests import (
    check_more_partitions as check_more_partitions,
)
from .topic_requests import (
    check_partition_total as check_partition_total,
)
from .topic_requests import (
    new_topic_partitions as new_topic_partitions,
)
