"""Make the sections "metadata" and "control" of `record_schemas.json` from the message definitions in Kafka's own jars.

    python -m tests.golden.dump.make_schemas

"metadata": API key -> {"type": name of the record type, "value": schema}, of the records of `__cluster_metadata`;
"control": name -> schema, of the control records of KRaft. What the JSON form of a message does not need is left out.
"""

from __future__ import annotations

import json
import re
import zipfile
from pathlib import Path
from typing import Any

from tests.support.reference_jars import BROKER_JARS, classpath

SCHEMAS = Path(__file__).parents[3] / "src/stratalog/cli/dump/record_schemas.json"
CONTROL = (
    "LeaderChangeMessage",
    "SnapshotHeaderRecord",
    "SnapshotFooterRecord",
    "KRaftVersionRecord",
    "VotersRecord",
)


def _definition(archive: zipfile.ZipFile, name: str) -> dict[str, Any]:
    text = re.sub(r"(?m)^\s*//.*$", "", archive.read(name).decode())
    definition: dict[str, Any] = json.loads(text)
    return definition


def _compact(definition: dict[str, Any]) -> dict[str, Any]:
    structs = {struct["name"]: struct["fields"] for struct in definition.get("commonStructs", ())}

    def field(source: dict[str, Any]) -> dict[str, Any]:
        made = {"name": source["name"][0].lower() + source["name"][1:], "type": source["type"]}
        made["versions"] = source["versions"]
        for ours, theirs in (
            ("nullable", "nullableVersions"),
            ("tagged", "taggedVersions"),
            ("tag", "tag"),
            ("default", "default"),
        ):
            if theirs in source:
                made[ours] = source[theirs]
        fields = source.get("fields") or structs.get(source["type"].removeprefix("[]"))
        if fields:
            made["fields"] = [field(inner) for inner in fields]
        return made

    return {
        "name": definition["name"],
        "validVersions": definition["validVersions"],
        "flexibleVersions": definition["flexibleVersions"],
        "fields": [field(source) for source in definition["fields"]],
    }


def _type_name(name: str) -> str:
    """TopicRecord -> TOPIC_RECORD, as MetadataRecordType spells it."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper()


def main() -> None:
    jars = Path(classpath(BROKER_JARS)).parent
    (metadata_jar,), (clients_jar,) = jars.glob("kafka-metadata-*.jar"), jars.glob("kafka-clients-*.jar")
    lines = SCHEMAS.read_text(encoding="utf-8").rstrip().removesuffix("}").rstrip()
    lines = lines.partition(',\n "metadata"')[0]
    dump = json.JSONEncoder(separators=(",", ":")).encode
    with zipfile.ZipFile(metadata_jar) as archive:
        names = [name for name in archive.namelist() if re.fullmatch(r"common/metadata/\w+\.json", name)]
        definitions = sorted((_definition(archive, name) for name in names), key=lambda one: one["apiKey"])
    rows = [
        f'  "{one["apiKey"]}": {{"type":"{_type_name(one["name"])}","value":{dump(_compact(one))}}}'
        for one in definitions
    ]
    lines += ',\n "metadata": {\n' + ",\n".join(rows) + "\n }"
    with zipfile.ZipFile(clients_jar) as archive:
        rows = [
            f'  "{name}": {dump(_compact(_definition(archive, f"common/message/{name}.json")))}'
            for name in CONTROL
        ]
    lines += ',\n "control": {\n' + ",\n".join(rows) + "\n }\n}\n"
    json.loads(lines)
    SCHEMAS.write_text(lines, encoding="utf-8")


if __name__ == "__main__":
    main()
