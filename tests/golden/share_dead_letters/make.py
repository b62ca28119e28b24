"""Make `answers.json`, `records.json` and `letters.json`: what Apache Kafka 4.4.0 answers to, and stores for,
`tests/broker/share/dead_letter_cases.py`.

    python -m tests.golden.share_dead_letters.make
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from tests.broker.share.dead_letter_cases import CONFIG, letters, run
from tests.support.consumer_offsets import stored_records
from tests.support.reference_kafka import ReferenceKafka

ANSWERS = Path(__file__).parent / "answers.json"
RECORDS = Path(__file__).parent / "records.json"
LETTERS = Path(__file__).parent / "letters.json"


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        with ReferenceKafka(directory, config=CONFIG) as kafka:
            answers = run(kafka.bootstrap_servers)
        records = stored_records(kafka.data_dir, "__share_group_state")
        told = letters(kafka.data_dir)
    _write(ANSWERS, answers)
    _write(LETTERS, told)
    rows = ",\n".join(json.dumps([key.hex(), None if value is None else value.hex()]) for _, key, value in records)
    RECORDS.write_text(f"[\n{rows}\n]\n")


def _write(path: Path, by_name: dict[str, Any]) -> None:
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(each)}" for name, each in by_name.items())
    path.write_text(f"{{\n{lines}\n}}\n")


if __name__ == "__main__":
    main()
