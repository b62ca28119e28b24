"""Find differences between a copy of a broker's metadata and the partitions of a directory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from stratalog.cli.out import counted
from stratalog.engine.dirs import partitions_in, stored_cluster_id
from stratalog.log.format import noted_topic_id, parse_partition_dir
from stratalog.util import REAL_FILESYSTEM, uuid_to_base64


def unlike(document: dict[str, Any], data_dir: Path) -> list[str]:
    """Return the differences between a directory's partitions and the document."""
    found = []
    stored = stored_cluster_id(data_dir)
    if stored not in (None, document["clusterId"]):
        found.append(f"{data_dir} belongs to cluster {stored}, the document to {document['clusterId']}")
    topics = {topic["name"]: topic for topic in document["topics"]}
    for path in sorted(partitions_in(data_dir, REAL_FILESYSTEM)):
        name, number = parse_partition_dir(path.name) or ("", 0)
        topic = topics.get(name)
        topic_id = noted_topic_id(path)
        if topic is None:
            found.append(f"{path.name}: the document has no topic {name}; its records would not be served")
        elif topic_id is not None and uuid_to_base64(topic_id) != topic["id"]:
            found.append(
                f"{path.name}: its topic has the id {uuid_to_base64(topic_id)}, in the document it is {topic['id']}; "
                "the directory would be set aside"
            )
        elif number >= topic["partitions"]:
            found.append(f"{path.name}: in the document {name} has {counted(topic['partitions'], 'partition')}")
    return found
