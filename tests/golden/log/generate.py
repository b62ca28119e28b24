"""Have Apache Kafka 4.4.0 live the lives of `tests/log/parity` and keep its answers and files.

    .venv/bin/python -m tests.golden.log.generate

Needs Java and Kafka's jars (`tests/support/reference_jars.py`). Each life becomes `life-<seed>.json`: the lines, Kafka's
answer to each, and every file that it left, as its size and its bytes in base64 without the zeros at the end. Seeds were
picked so that together they roll by size, age and full indexes, truncate, crash, lose indexes, tier and transact; 519 has
old message formats, zombies, fenced coordinators and timestamps that are refused. The steps of a life may have changed
since the others were recorded: making them again gives other lives.
"""

from __future__ import annotations

from pathlib import Path

from tests.log.parity.golden import record_life
from tests.log.parity.lives import random_life

GOLDEN = Path(__file__).parent
SEEDS = (1, 4, 9, 12, 20, 33, 519)
STEPS = 70


def main() -> None:
    for seed in SEEDS:
        lines = random_life(seed, STEPS)
        record_life(GOLDEN / f"life-{seed}.json", lines)


if __name__ == "__main__":
    main()
