"""Write `answers.json`: what Kafka 4.4.0 answers to clients that ask for delegation tokens.

python -m tests.golden.tokens.make
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.reference_kafka import ReferenceKafka, free_port
from tests.support.token_cases import story, story_without_tokens, token_config

GOLDEN = Path(__file__).with_name("answers.json")


@contextmanager
def token_kafka(directory: Path, *, with_secret: bool = True) -> Iterator[tuple[str, str]]:
    """Run Kafka; its plain address and the one for passwords."""
    kafka = ReferenceKafka(directory)
    sasl = f"127.0.0.1:{free_port()}"
    config = token_config(kafka.bootstrap_servers, sasl)
    config["listeners"] += f",CONTROLLER://127.0.0.1:{kafka._controller_port}"
    config["listener.security.protocol.map"] = (
        "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT"
    )
    if not with_secret:
        del config["delegation.token.secret.key"]
    kafka.config = config
    with kafka:
        yield kafka.bootstrap_servers, sasl


def ask_kafkas(directory: Path) -> dict[str, list[str]]:
    with token_kafka(directory / "with") as addresses:
        told = story(*addresses, lag_s=0.5)
    with token_kafka(directory / "without", with_secret=False) as addresses:
        return {"with": told, "without": story_without_tokens(*addresses, lag_s=0.5)}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        GOLDEN.write_text(json.dumps(ask_kafkas(Path(made)), indent=1, ensure_ascii=False) + "\n")
