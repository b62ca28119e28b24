"""Have Apache Kafka 4.4.0 clean the logs of `tests/log/parity/cleaning_lives.py` and keep its answers and files.

    .venv/bin/python -m tests.golden.cleaner.generate

Needs Java and Kafka's jars (`tests/support/reference_jars.py`). Each life becomes `<name>.json`: the lines, Kafka's answer
to each, and every file that it left, as its size and its bytes in base64 without the zeros at the end. A life ends with a
cleaning: its directory is kept as it was before (`.before`), right after it (`.live`) and closed.
"""

from __future__ import annotations

from pathlib import Path

from tests.log.parity.cleaning_lives import random_cleaning_life
from tests.log.parity.golden import record_life

GOLDEN = Path(__file__).parent
#: Name, seed, codecs, old message formats.
LIVES = (
    ("plain-1", 1, False, False),
    ("plain-2", 2, False, False),
    ("plain-3", 8, False, False),
    ("plain-4", 22, False, False),
    ("old-formats-1", 3, False, True),
    ("old-formats-2", 6, False, True),
    ("codecs-1", 5, True, False),
    ("codecs-2", 7, True, True),
)
STEPS = 90


def main() -> None:
    for name, seed, codecs, old_formats in LIVES:
        lines = random_cleaning_life(seed, STEPS, codecs=codecs, old_formats=old_formats)
        record_life(GOLDEN / f"{name}.json", lines)


if __name__ == "__main__":
    main()
