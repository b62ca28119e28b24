"""Write `throttle_times.txt`: what Kafka 4.4.0's quota managers make of seeded lists of requests.

python -m tests.golden.quotas.make_throttle_times
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path

from tests.support.quota_plays import play
from tests.support.reference_jars import BROKER_JARS, classpath, java

GOLDEN = Path(__file__).with_name("throttle_times.txt")
PROGRAM = Path(__file__).parents[2] / "interop" / "QuotaAnswers.java"
SEEDS = range(60)


def kafkas_answers(seeds: Iterable[int]) -> list[str]:
    done = subprocess.run(
        [java(), "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", classpath(BROKER_JARS), str(PROGRAM)],
        input="".join(f"{line}\n" for seed in seeds for line in play(seed)),
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=True,
    )
    return done.stdout.splitlines()


if __name__ == "__main__":
    GOLDEN.write_text("".join(f"{line}\n" for line in kafkas_answers(SEEDS)))
