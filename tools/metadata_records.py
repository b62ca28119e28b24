"""Write `wire/metadata_records/definitions.py` from the message definitions in a jar of Kafka.

Usage: `metadata_records.py JAR`. JAR is `kafka-metadata-VERSION.jar`, where the definitions lie under
`common/metadata/`.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TARGET = Path(__file__).parents[1] / "src/stratalog/wire/metadata_records/definitions.py"
ANNOTATIONS = {
    "bool": ("Bool", "False"),
    "int8": ("Int8", "0"),
    "int16": ("Int16", "0"),
    "uint16": ("Uint16", "0"),
    "int32": ("Int32", "0"),
    "int64": ("Int64", "0"),
    "float64": ("Float64", "0.0"),
    "string": ("String", '""'),
    "bytes": ("Bytes", 'b""'),
    "uuid": ("Uuid", "None"),
}
HEAD = '''"""The records of Kafka's metadata log, in all their versions.

Generated from the message definitions in {jar}. To print it again, run
`python tools/metadata_records.py {jar}`.
"""

from typing import Annotated, Final

from stratalog.wire.metadata_records.schema import (
    {names},
)

'''


def definitions(jar: Path) -> list[dict[str, Any]]:
    with zipfile.ZipFile(jar) as archive:
        texts = [
            archive.read(name).decode() for name in archive.namelist() if re.match(r"common/metadata/\w+\.json", name)
        ]
    found = [json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE)) for text in texts]
    return sorted((each for each in found if each["type"] == "metadata"), key=lambda each: int(each["apiKey"]))


def first_version(field: dict[str, Any]) -> int:
    versions = str(field["versions"])
    for key in ("nullableVersions", "taggedVersions"):
        if field.get(key, versions) != versions:
            raise SystemExit(f"{field['name']}: {key} {field[key]} differ from versions {versions}")
    if not versions.endswith("+"):
        raise SystemExit(f"{field['name']}: versions {versions} end")
    return int(versions[:-1])


def field_line(field: dict[str, Any]) -> str:
    kind = str(field["type"])
    inner = kind.removeprefix("[]")
    annotation, default = ANNOTATIONS.get(inner, (inner, "()"))
    if kind.startswith("[]"):
        annotation, default = f"tuple[{annotation}, ...]", "()"
    if "nullableVersions" in field:
        annotation += " | None"
    if "default" in field:
        default = {"null": "None", "true": "True", "false": "False"}.get(field["default"], field["default"])
    marks = [f"Since({since})"] if (since := first_version(field)) else []
    marks += [f"Tag({field['tag']})"] if "tag" in field else []
    if marks:
        annotation = f"Annotated[{', '.join((annotation, *marks))}]"
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", field["name"]).lower()
    return f"    {name}: {annotation} = {default}"


def classes(name: str, base: str, fields: list[dict[str, Any]]) -> Iterator[str]:
    for field in fields:
        if "fields" in field:
            yield from classes(field["type"].removeprefix("[]"), "Message", field["fields"])
    body = [field_line(field) for field in fields] or ["    pass"]
    yield "\n".join((f"@message\nclass {name}({base}):", *body, "\n"))


def main() -> None:
    jar = Path(sys.argv[1])
    parts: list[str] = []
    table: list[str] = []
    for each in definitions(jar):
        if each["flexibleVersions"] != "0+":
            raise SystemExit(f"{each['name']}: not all versions are flexible")
        parts += classes(each["name"], "MetadataRecord", each["fields"])
        table.append(f"    {each['apiKey']}: ({each['name']}, {each['validVersions'].partition('-')[2] or 0}),")
    body = "\n".join(
        (*parts, "#: By api key: the record and its newest version.", "RECORDS: Final = {", *table, "}", "")
    )
    candidates = ["Message", "MetadataRecord", "Since", "Tag", "message", *(name for name, _ in ANNOTATIONS.values())]
    names = sorted((name for name in candidates if re.search(rf"\b{name}\b", body)), key=lambda n: (n.islower(), n))
    TARGET.write_text(HEAD.format(jar=jar.name, names=",\n    ".join(names)) + "\n" + body)
    subprocess.run([sys.executable, "-m", "ruff", "format", "-q", str(TARGET)], check=True)


if __name__ == "__main__":
    main()
