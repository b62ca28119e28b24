"""A life as Kafka lived it, kept as a file: its lines, the answer to each, and every file that it left."""

from __future__ import annotations

import json
import tempfile
from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.log.parity.scenario import files_of, live_as_kafka
from tests.support.reference_jars import KAFKA_VERSION


@dataclass(frozen=True)
class RecordedLife:
    """`files`: name -> size, and the bytes without the zeros at the end."""

    lines: list[str]
    answers: list[str]
    files: dict[str, tuple[int, bytes]]


def record_life(path: Path, lines: Sequence[str]) -> None:
    """Have Kafka live it, and keep it."""
    with tempfile.TemporaryDirectory() as directory:
        answers = live_as_kafka(list(lines), Path(directory))
        files = files_of(Path(directory))
    kept = {
        "kafka": KAFKA_VERSION,
        "lines": lines,
        "answers": answers,
        "files": {name: [size, b64encode(data).decode()] for name, (size, data) in files.items()},
    }
    path.write_text(json.dumps(kept, indent=0) + "\n")


def recorded_life(path: Path) -> RecordedLife:
    kept = json.loads(path.read_text())
    files = {name: (size, b64decode(data)) for name, (size, data) in kept["files"].items()}
    return RecordedLife(kept["lines"], kept["answers"], files)
