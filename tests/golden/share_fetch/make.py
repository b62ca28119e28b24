"""Make `answers.json` and `records.json`: what Apache Kafka 4.4.0 answers to, and stores for,
`tests/broker/share/fetch_cases.py`.

    python -m tests.golden.share_fetch.make
"""

from __future__ import annotations

from pathlib import Path

from tests.broker.share.fetch_cases import CONFIG, run
from tests.support.goldens import play_to_kafka, write_answers, write_records

ANSWERS = Path(__file__).parent / "answers.json"
RECORDS = Path(__file__).parent / "records.json"


def main() -> None:
    answers, records = play_to_kafka(run, CONFIG, "__share_group_state")
    write_answers(ANSWERS, answers)
    write_records(RECORDS, records, partitions=False)


if __name__ == "__main__":
    main()
