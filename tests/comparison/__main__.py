"""python -m tests.comparison --requests 100000 --seed 1"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from stratalog.wire.api_keys import ApiKey
from tests.comparison.brokers import two_brokers
from tests.comparison.comparison import Difference, compare


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.comparison", description="Ask Kafka and ours the same.")
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first-round", type=int, default=0)
    parser.add_argument("--api", action="append", help="ask only this API (a name or a key); repeatable")
    parser.add_argument("--examples", type=int, default=1, help="examples of each kind of difference")
    parser.add_argument("--verbose", action="store_true", help="print every request with both answers")
    options = parser.parse_args()
    only = {ApiKey(int(api)) if api.isdigit() else ApiKey[api.upper()] for api in options.api or ()}
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as directory, two_brokers(Path(directory)) as (theirs, ours):
        outcome = compare(
            theirs,
            ours,
            seed=options.seed,
            count=options.requests,
            first_round=options.first_round,
            only=only,
            verbose=options.verbose,
        )
    kinds: dict[str, list[Difference]] = {}
    for difference in outcome.differences:
        kinds.setdefault(difference.kind, []).append(difference)
    for kind, found in sorted(kinds.items(), key=lambda item: -len(item[1])):
        print(f"{len(found)} x {kind}", *found[: options.examples], "", sep="\n")
    for reason, times in outcome.explained.items():
        print(f"{times} x explained: {reason}")
    apis = {key for key, _ in outcome.asked}
    print(
        f"{outcome.requests} requests of {len(apis)} APIs in {len(outcome.asked)} versions, seed {options.seed}: "
        f"{len(outcome.differences)} differences of {len(kinds)} kinds, {time.monotonic() - begin:.0f} s"
    )
    return 1 if outcome.differences else 0


if __name__ == "__main__":
    sys.exit(main())
