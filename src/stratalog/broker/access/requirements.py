"""The table of guards: what each API requires of the authorizer.

As in Kafka's `KafkaApis` and `ControllerApis`, a client that may not describe a topic does not learn whether it exists,
and a refused entry has Kafka's error code.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from stratalog.broker.access.acls import AclOperation as Op
from stratalog.broker.access.entry_guards import (
    GROUP,
    GROUP_CODE,
    TOPIC,
    TOPIC_CODE,
    cluster_entries,
    cluster_operation,
    each_entry,
    group_operation,
    plain_index,
    refuse_partitions,
    refused_result,
    transactional_id,
)
from stratalog.broker.access.group_guards import (
    consumer_group_heartbeat,
    describe_consumer_groups,
    describe_groups,
    describe_share_groups,
    describe_streams_groups,
    find_coordinator,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
)
from stratalog.broker.access.guard import Guard
from stratalog.broker.access.security_guards import (
    alter_scram,
    create_token,
    describe_scram,
    describe_tokens,
    refused_acl,
    refused_acl_filter,
    refused_quota,
)
from stratalog.broker.access.share_guards import (
    alter_share_offsets,
    delete_share_offsets,
    describe_share_offsets,
    share_states,
)
from stratalog.broker.access.topic_guards import (
    configs_guard,
    create_topics,
    delete_topics,
    describe_cluster,
    describe_log_dirs,
    describe_topic_partitions,
    elect_leaders,
    metadata_guard,
    offset_for_leader_epoch,
)
from stratalog.broker.access.transaction_guards import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    describe_transactions,
    init_producer_id,
    list_transactions,
    txn_offset_commit,
    write_txn_markers,
)
from stratalog.wire import ApiKey

#: None means no check. APIs that are not listed are inter-broker. Produce and Fetch check by themselves: WRITE of each
#: topic and, for transactional records, of the transactional id; READ of each topic.
GUARDS: Final[Mapping[ApiKey, Guard | None]] = {
    ApiKey.PRODUCE: None,
    ApiKey.FETCH: None,
    ApiKey.LIST_OFFSETS: each_entry(
        Op.DESCRIBE,
        TOPIC,
        "topics",
        "topics",
        refuse_partitions(
            "ListOffsetsTopicResponse", "ListOffsetsPartitionResponse", timestamp=-1, offset=-1, leader_epoch=-1
        ),
    ),
    ApiKey.METADATA: metadata_guard,
    ApiKey.OFFSET_COMMIT: offset_commit,
    ApiKey.OFFSET_FETCH: offset_fetch,
    ApiKey.FIND_COORDINATOR: find_coordinator,
    ApiKey.JOIN_GROUP: group_operation(Op.READ),
    ApiKey.HEARTBEAT: group_operation(Op.READ),
    ApiKey.LEAVE_GROUP: group_operation(Op.READ),
    ApiKey.SYNC_GROUP: group_operation(Op.READ),
    ApiKey.DESCRIBE_GROUPS: describe_groups("DescribedGroup", "groups"),
    ApiKey.LIST_GROUPS: list_groups,
    ApiKey.SASL_HANDSHAKE: None,
    ApiKey.API_VERSIONS: None,
    ApiKey.CREATE_TOPICS: create_topics,
    ApiKey.DELETE_TOPICS: delete_topics,
    ApiKey.DELETE_RECORDS: each_entry(
        Op.DELETE,
        TOPIC,
        "topics",
        "topics",
        refuse_partitions("DeleteRecordsTopicResult", "DeleteRecordsPartitionResult", low_watermark=-1),
    ),
    ApiKey.INIT_PRODUCER_ID: init_producer_id,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: offset_for_leader_epoch,
    ApiKey.ADD_PARTITIONS_TO_TXN: add_partitions_to_txn,
    ApiKey.ADD_OFFSETS_TO_TXN: add_offsets_to_txn,
    ApiKey.END_TXN: transactional_id,
    ApiKey.WRITE_TXN_MARKERS: write_txn_markers,
    ApiKey.TXN_OFFSET_COMMIT: txn_offset_commit,
    ApiKey.DESCRIBE_ACLS: cluster_operation(Op.DESCRIBE),
    ApiKey.CREATE_ACLS: cluster_entries(Op.ALTER, "creations", "results", refused_acl),
    ApiKey.DELETE_ACLS: cluster_entries(Op.ALTER, "filters", "filter_results", refused_acl_filter),
    ApiKey.DESCRIBE_CONFIGS: configs_guard(Op.DESCRIBE_CONFIGS, "results", "DescribeConfigsResult", configs=()),
    ApiKey.ALTER_CONFIGS: configs_guard(Op.ALTER_CONFIGS, "responses", "AlterConfigsResourceResponse"),
    ApiKey.ALTER_REPLICA_LOG_DIRS: cluster_operation(Op.ALTER),
    ApiKey.DESCRIBE_LOG_DIRS: describe_log_dirs,
    ApiKey.SASL_AUTHENTICATE: None,
    ApiKey.CREATE_DELEGATION_TOKEN: create_token,
    ApiKey.RENEW_DELEGATION_TOKEN: None,
    ApiKey.EXPIRE_DELEGATION_TOKEN: None,
    ApiKey.DESCRIBE_DELEGATION_TOKEN: describe_tokens,
    ApiKey.CREATE_PARTITIONS: each_entry(
        Op.ALTER, TOPIC, "topics", "results", refused_result("CreatePartitionsTopicResult", "name", TOPIC_CODE)
    ),
    ApiKey.DELETE_GROUPS: each_entry(
        Op.DELETE,
        GROUP,
        "groups_names",
        "results",
        refused_result("DeletableGroupResult", "group_id", GROUP_CODE),
        name=str,
    ),
    ApiKey.ELECT_LEADERS: elect_leaders,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: configs_guard(Op.ALTER_CONFIGS, "responses", "AlterConfigsResourceResponse"),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: cluster_operation(Op.ALTER),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: cluster_operation(Op.DESCRIBE),
    ApiKey.OFFSET_DELETE: offset_delete,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: cluster_operation(Op.DESCRIBE_CONFIGS),
    ApiKey.ALTER_CLIENT_QUOTAS: cluster_entries(Op.ALTER_CONFIGS, "entries", "entries", refused_quota),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: describe_scram,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: alter_scram,
    ApiKey.DESCRIBE_QUORUM: cluster_operation(Op.DESCRIBE),
    ApiKey.UPDATE_FEATURES: cluster_operation(Op.ALTER),
    ApiKey.DESCRIBE_CLUSTER: describe_cluster,
    ApiKey.DESCRIBE_PRODUCERS: each_entry(
        Op.READ,
        TOPIC,
        "topics",
        "topics",
        refuse_partitions("TopicResponse", "PartitionResponse", partitions="partition_indexes", index=plain_index),
    ),
    ApiKey.UNREGISTER_BROKER: cluster_operation(Op.ALTER),
    ApiKey.DESCRIBE_TRANSACTIONS: describe_transactions,
    ApiKey.LIST_TRANSACTIONS: list_transactions,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: consumer_group_heartbeat,
    ApiKey.CONSUMER_GROUP_DESCRIBE: describe_consumer_groups,
    ApiKey.SHARE_GROUP_HEARTBEAT: consumer_group_heartbeat,
    ApiKey.SHARE_GROUP_DESCRIBE: describe_share_groups,
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: None,
    ApiKey.PUSH_TELEMETRY: None,
    ApiKey.STREAMS_GROUP_HEARTBEAT: group_operation(Op.READ),
    ApiKey.STREAMS_GROUP_DESCRIBE: describe_streams_groups,
    ApiKey.SHARE_FETCH: None,
    ApiKey.SHARE_ACKNOWLEDGE: None,
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: share_states("InitializeStateResult"),
    ApiKey.READ_SHARE_GROUP_STATE: share_states("ReadStateResult", state_epoch=0, start_offset=0, state_batches=()),
    ApiKey.WRITE_SHARE_GROUP_STATE: share_states("WriteStateResult"),
    ApiKey.DELETE_SHARE_GROUP_STATE: share_states("DeleteStateResult"),
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: share_states(
        "ReadStateSummaryResult", state_epoch=0, leader_epoch=0, start_offset=0
    ),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: describe_share_offsets,
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: alter_share_offsets,
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: delete_share_offsets,
    ApiKey.LIST_CONFIG_RESOURCES: cluster_operation(Op.DESCRIBE_CONFIGS),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: describe_topic_partitions,
}
