"""The metadata of a broker as one JSON document: export, checks and import.

The document has everything that a broker stores besides its logs: cluster id, features, topics with ids and settings,
dynamic configurations, access rules and the next producer id. Credentials and secret settings are included only on
request. `version` is incremented when older releases could misread it; a higher one is refused.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import UUID

from stratalog.broker.access import acl_of, check_new_acl
from stratalog.broker.metadata.alter_configs import GROUP
from stratalog.broker.metadata.config_entries import broker_key
from stratalog.broker.metadata.store_file import FEATURES_EPOCH, STORE_FILE, open_file, open_read_only
from stratalog.broker.quotas import check_quota, entity_of
from stratalog.broker.security import check_stored_user
from stratalog.broker.topics import check_topic_name
from stratalog.config import METADATA_VERSION, OTHER_FEATURES, ConfigType, LogConfig, level_name, parse_group_configs
from stratalog.errors import DataDirError, InvalidConfigError, KafkaError, UsageError
from stratalog.util import REAL_FILESYSTEM, FileSystem, sync_file, uuid_from_base64, uuid_to_base64

FORMAT = "stratalog-metadata"
VERSION = 1

_ACL_FIELDS = ("resource_type", "name", "pattern_type", "principal", "host", "operation", "permission")
_KINDS: Mapping[str, type] = {
    "clusterId": str,
    "features": dict,
    "featuresEpoch": int,
    "nextProducerId": int,
    "topics": list,
    "brokerConfigs": dict,
    "acls": list,
}
_TOPIC_KINDS: Mapping[str, type] = {"name": str, "id": str, "partitions": int, "configs": dict, "createdMs": int}
_INT64_MAX = 2**63 - 1
_NODE_ID_MAX = 2**31 - 1
_DIGITS_MAX = len(str(_NODE_ID_MAX))


def export_document(data_dir: Path, *, with_credentials: bool = False) -> dict[str, Any]:
    """Return the metadata of a directory, from one consistent read. A broker may be using it.

    Raises DataDirError if there is none or it cannot be read.
    """
    with closing(open_read_only(data_dir / STORE_FILE)) as db:
        db.execute("BEGIN")
        return _document(db, with_credentials)


def document_bytes(document: Mapping[str, Any]) -> bytes:
    """Return the document as stored in a file or a bucket."""
    return (json.dumps(document, indent=1, sort_keys=True) + "\n").encode()


def parse_document(data: bytes, name: str) -> dict[str, Any]:
    """Return a structurally valid document: of this format, with fields of the right types. `name` is for errors.

    Raises UsageError. `document_problems` checks the values.
    """
    try:
        document = json.loads(data)
        json.dumps(document, ensure_ascii=False).encode()
    except (
        ValueError,
        RecursionError,
    ) as error:  # an escaped lone surrogate is valid JSON, but not valid text
        raise UsageError(f"{name} is not a JSON document: {error}") from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise UsageError(f"{name} is not a copy of metadata: its format is not {FORMAT}")
    version = document.get("version")
    if type(version) is not int or version < 1:
        raise UsageError(f"{name}: version is {version!r}, expected a number from 1 on")
    if version > VERSION:
        raise UsageError(f"{name} has version {version}, this stratalog reads versions up to {VERSION}")
    _check_kinds(document, _KINDS, name)
    for at, topic in enumerate(document["topics"]):
        _check_kinds(topic, _TOPIC_KINDS, f"{name}: topics[{at}]")
        _check_texts(topic["configs"], f"{name}: the settings of topic {topic['name']}")
    _check_configs(document["brokerConfigs"], "brokerConfigs", name)
    _check_configs(document.get("groupConfigs", {}), "groupConfigs", name)
    quotas = document.get("clientQuotas", [])
    if not isinstance(quotas, list):
        raise UsageError(f"{name}: clientQuotas is not a list")
    for at, quota in enumerate(quotas):
        _check_kinds(quota, {"entity": dict, "key": str, "value": float}, f"{name}: clientQuotas[{at}]")
    credentials = document.get("credentials", [])
    if not isinstance(credentials, list):
        raise UsageError(f"{name}: credentials is not a list")
    for at, credential in enumerate(credentials):
        _check_kinds(credential, {"kind": str, "name": str, "value": str}, f"{name}: credentials[{at}]")
    return document


def document_problems(document: Mapping[str, Any]) -> list[str]:
    """Return the problems that prevent the import of a parsed document, one line each."""
    return list(_problems(document))


def import_document(
    document: Mapping[str, Any], data_dir: Path, *, replace: bool = False, fs: FileSystem = REAL_FILESYSTEM
) -> None:
    """Replace the metadata of a directory that is not in use by the document, atomically.

    After a crash the directory is unchanged, or contains the whole document. Raises UsageError for an invalid document,
    and DataDirError if the directory already has metadata, unless `replace`.
    """
    bad = document_problems(document)
    if bad:
        raise UsageError(f"the document cannot be imported: {bad[0]}" + (f" ({len(bad)} problems)" if bad[1:] else ""))
    path = data_dir / STORE_FILE
    if fs.exists(path) and not replace:
        raise DataDirError(f"{path} exists; give --replace to replace it")
    fs.make_dirs(data_dir)
    made = data_dir / f"{STORE_FILE}.import"
    for left in _files_of(made):
        if fs.exists(left):
            fs.remove(left)
    with closing(open_file(made, document["clusterId"], document["features"][METADATA_VERSION])) as db:
        _fill(db, document)
        db.execute("PRAGMA journal_mode=DELETE")  # a single file, to be renamed
    sync_file(made, fs)
    if fs.exists(path):
        # The write-ahead log of the old store must not be applied to the new one.
        with closing(sqlite3.connect(path, isolation_level=None)) as old:
            old.execute("PRAGMA journal_mode=DELETE")
    for beside in _files_of(path)[1:]:
        if fs.exists(beside):
            fs.remove(beside)
    fs.rename(made, path)
    fs.sync_dir(data_dir)


def _files_of(path: Path) -> list[Path]:
    return [path, *(path.with_name(path.name + suffix) for suffix in ("-wal", "-shm", "-journal"))]


def _document(db: sqlite3.Connection, with_credentials: bool) -> dict[str, Any]:
    meta = dict(db.execute("SELECT key, value FROM meta"))
    tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    features = {name: int(meta[name]) for name in (METADATA_VERSION, *OTHER_FEATURES) if name in meta}
    document: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "clusterId": meta["cluster.id"],
        "features": features,
        "featuresEpoch": int(meta.get(FEATURES_EPOCH, 0)),
        "nextProducerId": int(meta["producer.ids.next"]),
        "topics": [
            {
                "name": name,
                "id": uuid_to_base64(UUID(bytes=topic_id)),
                "partitions": count,
                "configs": json.loads(configs),
                "createdMs": created_ms,
            }
            for topic_id, name, count, configs, created_ms in db.execute(
                "SELECT topic_id, name, partition_count, configs, created_ms FROM topics WHERE deleting = 0"
                " ORDER BY name"
            )
        ],
        "brokerConfigs": {
            broker: {
                name: value for name, value in json.loads(configs).items() if with_credentials or not _is_secret(name)
            }
            for broker, configs in db.execute("SELECT broker, configs FROM broker_configs ORDER BY broker")
        },
        "acls": [],
    }
    if "acls" in tables:
        rows = db.execute(f"SELECT {', '.join(_ACL_FIELDS)} FROM acls ORDER BY rowid")
        document["acls"] = [dict(zip(_ACL_FIELDS, row, strict=True)) for row in rows]
    if "resource_configs" in tables:
        rows = db.execute("SELECT name, configs FROM resource_configs WHERE type = ? ORDER BY name", (GROUP,))
        document["groupConfigs"] = {name: json.loads(configs) for name, configs in rows}
    if "client_quotas" in tables:
        rows = db.execute("SELECT entity, key, value FROM client_quotas ORDER BY entity, key")
        document["clientQuotas"] = [
            {"entity": dict(json.loads(entity)), "key": key, "value": value} for entity, key, value in rows
        ]
    if with_credentials:
        rows = db.execute("SELECT kind, name, value FROM credentials ORDER BY kind, name")
        found = rows if "credentials" in tables else ()
        document["credentials"] = [{"kind": kind, "name": name, "value": value} for kind, name, value in found]
    return document


def _is_secret(name: str) -> bool:
    """Return whether DescribeConfigs hides a setting: a password, or an unknown key."""
    key = broker_key(name)
    return key is None or key.type is ConfigType.PASSWORD


def _check_kinds(given: Any, kinds: Mapping[str, type], where: str) -> None:
    if not isinstance(given, dict):
        raise UsageError(f"{where} is not an object")
    for field, kind in kinds.items():
        if type(given.get(field)) is not kind:
            raise UsageError(f"{where}: {field} is missing or not of the kind {kind.__name__}")


def _check_configs(found: Any, field: str, name: str) -> None:
    if not isinstance(found, dict):
        raise UsageError(f"{name}: {field} is not an object")
    for of, configs in found.items():
        if not isinstance(configs, dict):
            raise UsageError(f"{name}: {field} of {of!r} is not an object")
        _check_texts(configs, f"{name}: {field} of {of!r}")


def _check_texts(configs: Mapping[str, Any], where: str) -> None:
    for key, value in configs.items():
        if not isinstance(value, str):
            raise UsageError(f"{where}: the value of {key} is not a text")


def _problems(document: Mapping[str, Any]) -> Iterator[str]:
    if not document["clusterId"]:
        yield "clusterId is empty"
    yield from _feature_problems(document["features"])
    for field in ("featuresEpoch", "nextProducerId"):
        if not 0 <= document[field] <= _INT64_MAX:
            yield f"{field} is {document[field]}"
    for field in ("name", "id"):
        times = Counter(topic[field] for topic in document["topics"])
        yield from (f"two topics have the {field} {each}" for each, count in times.items() if count > 1)
    for topic in document["topics"]:
        yield from _topic_problems(topic)
    for broker in document["brokerConfigs"]:
        if broker and not (
            broker.isascii() and broker.isdecimal() and len(broker) <= _DIGITS_MAX and int(broker) <= _NODE_ID_MAX
        ):
            yield f"brokerConfigs has {broker!r}, which is no id of a broker"
    for group, configs in document.get("groupConfigs", {}).items():
        try:
            parse_group_configs(configs)
        except InvalidConfigError as error:
            yield f"group {group}: {error}"
    for at, acl in enumerate(document["acls"]):
        try:
            _check_acl_kinds(acl)
            check_new_acl(acl_of(**acl), ranges=True)
        except (TypeError, ValueError, KafkaError) as error:
            yield f"acls[{at}] is not an access rule: {error}"
    yield from _quota_problems(document)
    yield from _credential_problems(document)


def _quota_problems(document: Mapping[str, Any]) -> Iterator[str]:
    for at, quota in enumerate(document.get("clientQuotas", [])):
        try:
            _check_names(quota["entity"])
            entity = entity_of(list(quota["entity"].items()), lambda _host: True)
            check_quota(entity, quota["key"], quota["value"])
        except (TypeError, ValueError, KafkaError) as error:
            yield f"clientQuotas[{at}] is not a quota: {error}"


def _credential_problems(document: Mapping[str, Any]) -> Iterator[str]:
    for at, credential in enumerate(document.get("credentials", [])):
        try:
            if credential["kind"] == "scram":
                check_stored_user(credential["name"], credential["value"])
        except (TypeError, ValueError):  # without the reason, which may be secret
            yield f"credentials[{at}] is no credential of a user: {credential['name']!r}"


def _check_acl_kinds(acl: Any) -> None:
    for field in ("name", "principal", "host"):
        if not isinstance(acl[field], str):
            raise TypeError(f"its {field} is not a text")


def _check_names(entity: Mapping[str, Any]) -> None:
    for kind, name in entity.items():
        if not (name is None or isinstance(name, str)):
            raise TypeError(f"the name of its {kind} is not a text")


def _feature_problems(features: Mapping[str, Any]) -> Iterator[str]:
    for name, level in features.items():
        if name != METADATA_VERSION and name not in OTHER_FEATURES:
            yield f"the feature {name} is not known"
        elif type(level) is not int:
            yield f"the level of {name} is {level!r}"
    try:
        level_name(features[METADATA_VERSION])
    except KeyError:
        yield f"features has no {METADATA_VERSION}"
    except (KafkaError, TypeError) as error:
        yield str(error)


def _topic_problems(topic: Mapping[str, Any]) -> Iterator[str]:
    name = topic["name"]
    try:
        check_topic_name(name)
        LogConfig.from_properties(topic["configs"], None, use_large_index_format=True)
    except (KafkaError, InvalidConfigError) as error:
        yield f"topic {name}: {error}"
    try:
        uuid_from_base64(topic["id"])
    except ValueError:
        yield f"topic {name}: {topic['id']!r} is no id of a topic"
    if not 1 <= topic["partitions"] <= _NODE_ID_MAX:
        yield f"topic {name}: it has {topic['partitions']} partitions"
    if not -1 <= topic["createdMs"] <= _INT64_MAX:
        yield f"topic {name}: createdMs is {topic['createdMs']}"


def _fill(db: sqlite3.Connection, document: Mapping[str, Any]) -> None:
    """Insert the document into a new store, in one transaction."""
    rows = {
        **{name: str(level) for name, level in document["features"].items()},
        FEATURES_EPOCH: str(document["featuresEpoch"]),
        "producer.ids.next": str(document["nextProducerId"]),
    }
    db.execute("BEGIN IMMEDIATE")
    db.executemany("INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)", rows.items())
    db.executemany(
        "INSERT INTO topics (topic_id, name, partition_count, configs, created_ms) VALUES (?, ?, ?, ?, ?)",
        [
            (
                uuid_from_base64(topic["id"]).bytes,
                topic["name"],
                topic["partitions"],
                json.dumps(topic["configs"]),
                topic["createdMs"],
            )
            for topic in document["topics"]
        ],
    )
    db.executemany(
        "INSERT INTO broker_configs (broker, configs) VALUES (?, ?)",
        [(broker, json.dumps(configs)) for broker, configs in document["brokerConfigs"].items()],
    )
    db.executemany(
        "INSERT INTO resource_configs VALUES (?, ?, ?)",
        [(GROUP, name, json.dumps(configs)) for name, configs in document.get("groupConfigs", {}).items() if configs],
    )
    places = ", ".join("?" * len(_ACL_FIELDS))
    db.executemany(
        f"INSERT OR IGNORE INTO acls ({', '.join(_ACL_FIELDS)}) VALUES ({places})",
        [tuple(acl[field] for field in _ACL_FIELDS) for acl in document["acls"]],
    )
    db.executemany(
        "INSERT OR REPLACE INTO client_quotas VALUES (?, ?, ?)",
        [
            (json.dumps(sorted(each["entity"].items())), each["key"], each["value"])
            for each in document.get("clientQuotas", [])
        ],
    )
    db.executemany(
        "INSERT OR REPLACE INTO credentials (kind, name, value) VALUES (?, ?, ?)",
        [(each["kind"], each["name"], each["value"]) for each in document.get("credentials", [])],
    )
    db.execute("COMMIT")
