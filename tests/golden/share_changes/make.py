"""Make `answers.json`: what Apache Kafka 4.4.0 answers to `tests/broker/share/change_cases.py`.

    python -m tests.golden.share_changes.make
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from tests.broker.share.change_cases import CONFIG, run
from tests.support.reference_kafka import ReferenceKafka

ANSWERS = Path(__file__).parent / "answers.json"


def main() -> None:
    with tempfile.TemporaryDirectory() as directory, ReferenceKafka(directory, config=CONFIG) as kafka:
        answers = run(kafka.bootstrap_servers)
    lines = ",\n".join(f"{json.dumps(step)}: {json.dumps(answer)}" for step, answer in answers.items())
    ANSWERS.write_text(f"{{\n{lines}\n}}\n")


if __name__ == "__main__":
    main()
