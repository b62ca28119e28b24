"""Make `answers.json`, `records.json` and `letters.json`: what Apache Kafka 4.4.0 answers to, and stores for,
`tests/broker/share/dead_letter_cases.py`.

    python -m tests.golden.share_dead_letters.make
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.broker.share.dead_letter_cases import CONFIG, letters, run
from tests.support.consumer_offsets import stored_records
from tests.support.goldens import write_answers, write_records
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
    write_answers(ANSWERS, answers)
    write_answers(LETTERS, told)
    write_records(RECORDS, records, partitions=False)


if __name__ == "__main__":
    main()
