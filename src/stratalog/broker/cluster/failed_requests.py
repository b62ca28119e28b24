"""Error responses to requests that the controllers did not answer, with the error in each part.

As `getErrorResponse` of Kafka's request classes, which `ForwardingManagerImpl` calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from stratalog.broker.security import ANONYMOUS
from stratalog.errors import KafkaError, RequestTimedOutError, UnknownServerError
from stratalog.wire import ApiKey, build_message, response_class

#: Kafka's default messages of errors.
TEXTS: Final = {
    UnknownServerError.code: "The server experienced an unexpected error when processing the request.",
    RequestTimedOutError.code: "The request timed out.",
}
_DEFAULT_TOPIC: Final = {"num_partitions": -1, "replication_factor": -1, "configs": ()}

#: Returns the fields of the response to a request, given those of each error.
_Parts = Callable[[Any, Mapping[str, Any]], dict[str, Any]]


def failed_response(key: ApiKey, version: int, request: Any, error: KafkaError) -> Any:
    """Return the response to a request of `FORWARDED` that contains only `error`."""
    return build_message(response_class(key, version), _PARTS[key](request, {"error_code": error.code}))


def _with_text(error: Mapping[str, Any]) -> dict[str, Any]:
    return {**error, "error_message": TEXTS.get(error["error_code"])}


def _alone(request: Any, error: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG001
    return dict(error)


def _alone_with_text(request: Any, error: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG001
    return _with_text(error)


def _unregister(request: Any, error: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG001
    return _with_text(error) if error["error_code"] == UnknownServerError.code else dict(error)


def _create_topics(request: Any, error: Mapping[str, Any]) -> dict[str, Any]:
    return {"topics": [{"name": each.name, **_DEFAULT_TOPIC, **error} for each in request.topics]}


def _delete_topics(request: Any, error: Mapping[str, Any]) -> dict[str, Any]:
    names = getattr(request, "topic_names", None)
    if names is not None:
        return {"responses": [{"name": name, **error} for name in names]}
    return {"responses": [{"name": each.name, "topic_id": each.topic_id, **error} for each in request.topics]}


def _alter_configs(request: Any, error: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "responses": [
            {"resource_type": each.resource_type, "resource_name": each.resource_name, **error}
            for each in request.resources
        ]
    }


def _create_delegation_token(request: Any, error: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG001
    return {
        **error,
        "principal_type": ANONYMOUS.kind,
        "principal_name": ANONYMOUS.name,
        "token_requester_principal_type": ANONYMOUS.kind,
        "token_requester_principal_name": ANONYMOUS.name,
        "issue_timestamp": -1,
        "expiry_timestamp": -1,
        "max_timestamp": -1,
    }


def _elect_leaders(request: Any, error: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **error,
        "replica_election_results": [
            {
                "topic": each.topic,
                "partition_result": [{"partition_id": number, **error} for number in each.partitions],
            }
            for each in request.topic_partitions or ()
        ],
    }


def _alter_reassignments(request: Any, error: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **error,
        "allow_replication_factor_change": True,
        "responses": [
            {
                "name": each.name,
                "partitions": [{"partition_index": part.partition_index, **error} for part in each.partitions],
            }
            for each in request.topics
        ],
    }


def _list_reassignments(request: Any, error: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **error,
        "topics": [
            {
                "name": each.name,
                "partitions": [{"partition_index": number} for number in each.partition_indexes],
            }
            for each in request.topics or ()
        ],
    }


def _alter_quotas(request: Any, error: Mapping[str, Any]) -> dict[str, Any]:
    entries = [
        {
            "entity": [
                {"entity_type": part.entity_type, "entity_name": part.entity_name} for part in entry.entity
            ],
            **_with_text(error),
        }
        for entry in request.entries
    ]  # fmt: skip
    return {"entries": entries}


def _alter_scram(request: Any, error: Mapping[str, Any]) -> dict[str, Any]:
    users = dict.fromkeys(each.name for each in (*request.deletions, *request.upsertions))
    return {"results": [{"user": user, **error} for user in users]}


_PARTS: Final[Mapping[ApiKey, _Parts]] = {
    ApiKey.CREATE_TOPICS: _create_topics,
    ApiKey.DELETE_TOPICS: _delete_topics,
    ApiKey.CREATE_ACLS: lambda request, error: {"results": [error for _ in request.creations]},
    ApiKey.DELETE_ACLS: lambda request, error: {"filter_results": [error for _ in request.filters]},
    ApiKey.ALTER_CONFIGS: _alter_configs,
    ApiKey.CREATE_PARTITIONS: lambda request, error: {
        "results": [{"name": each.name, **error} for each in request.topics]
    },
    ApiKey.CREATE_DELEGATION_TOKEN: _create_delegation_token,
    ApiKey.RENEW_DELEGATION_TOKEN: _alone,
    ApiKey.EXPIRE_DELEGATION_TOKEN: _alone,
    ApiKey.ELECT_LEADERS: _elect_leaders,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _alter_configs,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _alter_reassignments,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _list_reassignments,
    ApiKey.ALTER_CLIENT_QUOTAS: _alter_quotas,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _alter_scram,
    ApiKey.DESCRIBE_QUORUM: _alone_with_text,
    ApiKey.UPDATE_FEATURES: _alone,
    ApiKey.UNREGISTER_BROKER: _unregister,
}
