"""Seeded lists of requests for the quota managers, Kafka's and ours, and what ours make of them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from random import Random

from stratalog.broker.quotas import MutationPermit, QuotaClient, QuotaMeter
from stratalog.broker.quotas.rate import QuotaWindow, TokenSensor
from stratalog.errors import ThrottlingQuotaExceededError

KINDS = ("bytes", "request", "mutation")
LONG_MAX = 2**63 - 1


def play(seed: int, steps: int = 120) -> Iterator[str]:
    """One line a step: see `tests/interop/QuotaAnswers.java`."""
    random = Random(seed)
    kind = KINDS[seed % 3]
    windows, seconds = random.choice(((11, 1), (2, 1), (1, 1), (5, 3)))
    now_ms = 1_700_000_000_000
    yield f"NEW {kind} {windows} {seconds} {now_ms}"
    users, clients = ("u", "v"), ("c", "d")
    limits = (0.01, 1, 2.5, 10) if kind != "bytes" else (1000, 10_000, 1_000_000)
    values = (1, 3, 40) if kind == "mutation" else (0.004, 0.3, 12) if kind == "request" else (70, 4096, 500_000, 10**7)
    for step in range(steps):
        now_ms += random.choice((0, 0, 1, 7, 130, 999, 1000, 1001, 2500, random.randrange(20_000)))
        if step < 2 or random.random() < 0.12:
            user, client = random.choice(("-", "*", *users)), random.choice(("-", "*", *clients))
            if user == client == "-":
                user = "*"
            limit = "-" if step > 2 and random.random() < 0.3 else random.choice(limits)
            yield f"SET {now_ms} {user} {client} {limit}"
            continue
        who = f"{random.choice(users)} {random.choice(clients)}"
        value = random.choice(values)
        if kind == "mutation":
            yield f"{random.choice(('STRICT', 'PERMISSIVE'))} {now_ms} {who} {value}"
        elif random.random() < 0.1:
            yield f"LATER {now_ms} {who} {-value}"
        elif random.random() < 0.1:
            yield f"MAX {now_ms} {who} 0"
        else:
            yield f"RECORD {now_ms} {who} {value}"


def our_answers(lines: Iterator[str]) -> Iterator[str]:
    """What our meters answer to the lines, as the Java program prints it."""
    meter: QuotaMeter | None = None
    for line in lines:
        word = line.split()
        if word[0] == "NEW":
            window = QuotaWindow(int(word[2]), 1000 * int(word[3]))
            meter = {
                "bytes": lambda window=window: QuotaMeter(window),
                "request": lambda window=window: QuotaMeter(window, throttle_ms_max=window.size_ms),
                "mutation": lambda window=window: QuotaMeter(window, TokenSensor, has_rate=True),
            }[word[1]]()
            continue
        assert meter is not None
        now_ms = int(word[1])
        if word[0] == "SET":
            user, client = ({"-": "", "*": None}.get(name, name) for name in word[2:4])
            meter.set_limit(user, client, None if word[4] == "-" else float(word[4]))
            continue
        answer = _answer(meter, word[0], QuotaClient(word[2], word[3]), float(word[4]), now_ms)
        if answer is not None:
            yield answer


def _answer(meter: QuotaMeter, verb: str, who: QuotaClient, value: float, now_ms: int) -> str | None:
    if verb == "RECORD":
        return str(meter.record(who, value, now_ms))
    if verb == "LATER":
        meter.record_later(who, value, now_ms)
        return None
    if verb == "MAX":
        most = meter.window_max(who, now_ms)
        return str(LONG_MAX if math.isinf(most) else math.floor(most + 0.5))
    if not meter.is_enabled:
        return "0"
    permit = MutationPermit(meter, who, is_strict=verb == "STRICT", now_ms=lambda: now_ms)
    try:
        permit.take(value)  # type: ignore[arg-type]
    except ThrottlingQuotaExceededError:
        return f"refused {_ms(permit)}"
    return str(_ms(permit))


def _ms(permit: MutationPermit) -> int:
    throttle = permit.end(None)
    return 0 if throttle is None else throttle.ms
