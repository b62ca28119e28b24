"""Make `answers.json` and `records.json`: what Apache Kafka 4.4.0 answers to, and stores for,
`tests/broker/share/fetch_cases.py`.

    python -m tests.golden.share_fetch.make
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from tests.broker.share.fetch_cases import CONFIG, run
from tests.support.consumer_offsets import stored_records
from tests.support.reference_kafka import ReferenceKafka

ANSWERS = Path(__file__).parent / "answers.json"
RECORDS = Path(__file__).parent / "records.json"


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        with ReferenceKafka(directory, config=CONFIG) as kafka:
            answers = run(kafka.bootstrap_servers)
        records = stored_records(kafka.data_dir, "__share_group_state")
    lines = ",\n".join(f"{json.dumps(step)}: {json.dumps(answer)}" for step, answer in answers.items())
    ANSWERS.write_text(f"{{\n{lines}\n}}\n")
    lines = ",\n".join(json.dumps([key.hex(), None if value is None else value.hex()]) for _, key, value in records)
    RECORDS.write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
