from .advice import (
    small_broker_index_warnings as small_broker_index_warnings,
    small_index_warnings as small_index_warnings,
    small_segment_warnings as small_segment_warnings,
)
from .alter_configs import (
    BROKER as BROKER,
    BROKER_LOGGER as BROKER_LOGGER,
    CLIENT_METRICS as CLIENT_METRICS,
    GROUP as GROUP,
    TOPIC as TOPIC,
    alter as alter,
    answer_each as answer_each,
    broker_of as broker_of,
    check_resource_type as check_resource_type,
)
from .cluster_metadata import (
    ClusterControl as ClusterControl,
    ClusterMetadata as ClusterMetadata,
    ProducerIdSource as ProducerIdSource,
)
from .config_changes import (
    Operation as Operation,
    changed_broker_configs as changed_broker_configs,
    changed_resource_configs as changed_resource_configs,
    changed_topic_configs as changed_topic_configs,
    check_broker_configs as check_broker_configs,
    check_names_and_values as check_names_and_values,
    check_topic_configs as check_topic_configs,
    is_tiered as is_tiered,
    meets_unknown_operation as meets_unknown_operation,
    parse_changes as parse_changes,
)
from .config_entries import (
    BrokerLevels as BrokerLevels,
    ConfigEntry as ConfigEntry,
    ConfigSource as ConfigSource,
    TopicDescriber as TopicDescriber,
    broker_entries as broker_entries,
    client_metrics_entries as client_metrics_entries,
    cluster_entries as cluster_entries,
    group_entries as group_entries,
)
from .document import (
    document_bytes as document_bytes,
    document_problems as document_problems,
    export_document as export_document,
    import_document as import_document,
    parse_document as parse_document,
)
from .dynamic_configs import InForce as InForce, check_rules as check_rules, in_force as in_force
from .features import FeatureUpdate as FeatureUpdate, UpgradeType as UpgradeType, check_update as check_update
from .logger_levels import alter_loggers_of as alter_loggers_of, logger_entries as logger_entries
from .store import (
    FinalizedFeatures as FinalizedFeatures,
    MetadataStore as MetadataStore,
    ProducerIdBlock as ProducerIdBlock,
    Topic as Topic,
)
from .store_file import STORE_FILE as STORE_FILE
from .topic_map import TopicLookup as TopicLookup
from .topic_requests import (
    UNSET as UNSET,
    Assignment as Assignment,
    check_more_partitions as check_more_partitions,
    check_partition_total as check_partition_total,
    new_topic_partitions as new_topic_partitions,
)
