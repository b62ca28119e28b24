"""Invariant: to the same requests, made by seed, Kafka and ours give the same answers, but for what is explained.

`tests/golden/comparison/answers.json` holds what Kafka 4.4.0 answered to some hundred of them, for machines without
Kafka. The soak asks 100,000: `python -m tests.comparison --requests 100000` prints what differs, by kind.
"""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import pytest

from stratalog.wire.api_keys import ApiKey
from tests.comparison.brokers import seen, stratalog, two_brokers
from tests.comparison.comparison import Difference, Outcome, ask_alone, asked, compare, differences
from tests.golden.comparison.make import COUNT, GOLDEN, SEED, as_json
from tests.support.reference_kafka import require_reference_kafka

SOAK_REQUESTS = 100_000


def test_ours_answers_as_kafka_did(tmp_path: Path) -> None:
    golden = json.loads(GOLDEN.read_text())
    versions = {ApiKey[name]: (first, last) for name, (first, last) in golden["versions"].items()}
    outcome = Outcome()
    requests = asked(versions, seed=SEED, count=COUNT)
    with stratalog(tmp_path) as broker, seen(broker.bootstrap_servers) as view:
        answers = as_json(ask_alone(view, versions, seed=SEED, count=COUNT))
    for number, (request, theirs, ours) in enumerate(zip(requests, golden["answers"], answers, strict=True)):
        for where, kafka, own in differences(request, theirs, ours):
            outcome.note(Difference(SEED, 0, number, request, where, kafka, own, (theirs, ours)))
    assert not outcome.differences, "\n\n".join(map(str, outcome.differences[:5]))


@pytest.mark.interop
def test_both_answer_a_few_hundred_requests_alike(tmp_path: Path) -> None:
    require_reference_kafka()
    _assert_alike(tmp_path, SEED, COUNT)


@pytest.mark.interop
@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_both_answer_100_000_requests_alike(tmp_path: Path) -> None:
    require_reference_kafka()
    _assert_alike(tmp_path, int(os.environ.get("STRATALOG_SEED", random.randrange(10**6))), SOAK_REQUESTS)


def _assert_alike(directory: Path, seed: int, count: int) -> None:
    print(f"seed {seed}")
    with two_brokers(directory) as (theirs, ours):
        outcome = compare(theirs, ours, seed=seed, count=count)
    assert outcome.requests == count
    assert not outcome.differences, "\n\n".join(map(str, outcome.differences[:5]))
