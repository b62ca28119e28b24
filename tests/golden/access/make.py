"""Write `answers.json`: what Kafka 4.4.0 answers to each API by clients with one right each.

python -m tests.golden.access.make
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from stratalog.config import STANDARD_AUTHORIZER
from tests.support.access_cases import answers, prepare
from tests.support.reference_kafka import ReferenceKafka

GOLDEN = Path(__file__).with_name("answers.json")
CONFIG = {
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "allow.everyone.if.no.acl.found": "true",
    "super.users": "User:nobody",
    "auto.create.topics.enable": "false",
    "share.coordinator.state.topic.num.partitions": "1",
}


def ask_kafka(directory: Path) -> dict[str, dict[str, list[str]]]:
    with ReferenceKafka(directory, config=CONFIG) as kafka:
        return answers(kafka.bootstrap_servers, prepare(kafka.bootstrap_servers))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        GOLDEN.write_text(json.dumps(ask_kafka(Path(made) / "kafka"), indent=1, ensure_ascii=False) + "\n")
