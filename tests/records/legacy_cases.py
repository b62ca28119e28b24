"""The files of `tests/golden/legacy/`: what Kafka wrote, and what it reads from that."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

DIRECTORY = Path(__file__).parents[1] / "golden" / "legacy"
FILES: dict[str, dict[str, Any]] = {
    case["name"]: case for case in json.loads((DIRECTORY / "cases.json").read_text(encoding="utf-8"))
}
KAFKA_READS: dict[str, list[dict[str, Any]]] = {
    name.removesuffix(".log"): batches
    for name, batches in json.loads((DIRECTORY / "kafka_reads.json").read_text(encoding="utf-8")).items()
}


def log_bytes(name: str) -> bytes:
    return (DIRECTORY / f"{name}.log").read_bytes()


def shown(data: bytes | None) -> str | None:
    """A key or value as `kafka_reads.json` has it."""
    if data is None:
        return None
    return f"{len(data)} bytes, crc32 {zlib.crc32(data)}" if len(data) > 64 else data.hex()


def content(node: Any) -> bytes | None:
    """A key or value of `cases.json`."""
    if node is None:
        return None
    text: str = node[0] * node[1] if isinstance(node, list) else node
    return text.encode()
