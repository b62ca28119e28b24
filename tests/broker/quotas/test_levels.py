"""Which of the eight levels holds, what is measured together, and that what is measured stays bounded."""

from __future__ import annotations

import tracemalloc
from itertools import product
from pathlib import Path

import pytest
from tests.support.quota_cases import describe, set_quota
from tests.support.wire import Wire

from stratalog import Broker
from stratalog.broker.quotas import QuotaClient, QuotaMeter
from stratalog.broker.quotas.levels import UNLIMITED, QuotaLevels, SharedBy
from stratalog.broker.quotas.meter import EXPIRY_MS
from stratalog.broker.quotas.rate import QuotaWindow, TokenSensor

#: The most specific one first; None is the default, empty: it is not looked at.
LEVELS = (
    ("u", "c"), ("u", None), ("u", ""), (None, "c"), (None, None), (None, ""), ("", "c"), ("", None),
)  # fmt: skip
WINDOW = QuotaWindow(11, 1000)
HOUR_MS = 3_600_000


def test_the_most_specific_of_all_levels_that_are_set_holds() -> None:
    for chosen in product((False, True), repeat=len(LEVELS)):
        levels = QuotaLevels()
        for number, level in enumerate(LEVELS):
            if chosen[number]:
                levels.set(*level, float(number))
        expected = float(chosen.index(True)) if any(chosen) else UNLIMITED
        assert levels.limit(levels.shared_by("u", "c")) == expected, chosen


def test_all_clients_of_a_user_share_the_quota_of_the_user_alone() -> None:
    levels = QuotaLevels()
    levels.set("u", "", 5)
    assert levels.shared_by("u", "c") == levels.shared_by("u", "d") == SharedBy("u", "")
    levels.set("u", "c", 7)
    assert levels.shared_by("u", "c") == SharedBy("u", "c")
    assert levels.shared_by("u", "d") == SharedBy("u", "")
    assert levels.shared_by("v", "c") == SharedBy("", "c")


def test_a_client_that_was_quiet_for_an_hour_is_forgotten() -> None:
    meter = QuotaMeter(WINDOW)
    meter.set_limit("", None, 1000)
    meter.record(QuotaClient("u", "old"), 1, 0)
    meter.record(QuotaClient("u", "kept"), 1, EXPIRY_MS)
    assert len(meter) == 2
    meter.record(QuotaClient("u", "new"), 1, EXPIRY_MS + 1)
    assert {reading.shared_by.client_id for reading in meter.readings(EXPIRY_MS + 1)} == {"kept", "new"}


@pytest.mark.parametrize("has_tokens", [False, True])
def test_client_ids_without_end_take_memory_within_bounds(has_tokens: bool) -> None:
    meter = QuotaMeter(WINDOW, TokenSensor, has_rate=True) if has_tokens else QuotaMeter(WINDOW)
    meter.set_limit("", None, 1000)
    in_debt = QuotaClient("u", "in debt")
    now_ms = 1_700_000_000_000
    meter.record(in_debt, 1e9, now_ms)
    tracemalloc.start()
    try:
        for number in range(20_000):
            now_ms += 2
            meter.record(QuotaClient("u", f"client-{number}"), 1, now_ms)
        assert len(meter) <= 10_001
        assert tracemalloc.get_traced_memory()[0] < 20_000_000
    finally:
        tracemalloc.stop()
    if has_tokens:
        assert meter.exhausted_ms(in_debt, now_ms)  # the one that matters is not forgotten


def test_what_is_set_outlives_a_restart(tmp_path: Path) -> None:
    entities = ({"user": "ü/ \n"}, {"user": None, "client-id": "c"}, {"ip": "localhost"}, {"ip": None})
    with Broker(data_dir=tmp_path) as broker, Wire(broker.bootstrap_servers) as wire:
        for entity in entities:
            key = "connection_creation_rate" if "ip" in entity else "request_percentage"
            set_quota(wire, entity, **{key: 2000})
        set_quota(wire, {"user": "gone"}, producer_byte_rate=5)
        set_quota(wire, {"user": "gone"}, producer_byte_rate=None)
        before = describe(wire)
    with Broker(data_dir=tmp_path) as broker, Wire(broker.bootstrap_servers) as wire:
        assert describe(wire) == before
        assert len(before) == len(entities)
        assert broker.services.quotas.pace is not None
        assert broker.services.quotas.connection.has_limit(QuotaClient("", "127.0.0.1"))
