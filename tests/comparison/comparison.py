"""Ask both brokers the same, note each difference once with the seed that shows it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from random import Random
from time import monotonic
from typing import Any

from stratalog.wire.api_keys import ApiKey
from tests.comparison.broker_view import BrokerView
from tests.comparison.explained import reason_for
from tests.comparison.requests import BROKER, LEFT_OUT, Names, Request, make_requests

#: Requests of a round: what goes wrong in one is forgotten with its topics, groups and producers.
ROUND_SIZE = 150
#: More than these of a broker are all that it has.
_SOME_KEYS = 100
#: Characters of a request or an answer in a report.
_SHOWN = 1200
#: Kafka answers an alteration, and the first JoinGroup of a group, before each of its readers knows of it.
_READ_LATE = {ApiKey.DESCRIBE_CONFIGS, ApiKey.LIST_GROUPS}
_INDEX = re.compile(r"\[\d+\]")


@dataclass(frozen=True)
class Difference:
    """One field of one answer. `where` leads to it; indexes are left out of `kind`."""

    seed: int
    round: int
    number: int
    request: Request
    where: str
    theirs: Any
    ours: Any
    #: The whole answers.
    answers: tuple[Any, Any]
    #: Topics of the round that had a codec of their own: the broker compresses what comes in another.
    compressed: frozenset[str] = frozenset()
    #: Topics of the round whose oldest records were deleted.
    shortened: frozenset[str] = frozenset()

    @property
    def kind(self) -> str:
        return f"{self.request.key.message} {_INDEX.sub('', self.where)}"

    def __str__(self) -> str:
        theirs, ours = (str(answer)[:_SHOWN] for answer in self.answers)
        return (
            f"seed {self.seed} round {self.round} request {self.number}: {str(self.request)[:_SHOWN]}\n"
            f"  {self.where or 'the answer'}: {str(self.theirs)[:_SHOWN]} != {str(self.ours)[:_SHOWN]}\n"
            f"  Kafka: {theirs}\n  ours:  {ours}"
        )


@dataclass
class Outcome:
    """The result of a comparison."""

    requests: int = 0
    asked: dict[tuple[ApiKey, int], int] = field(default_factory=dict)
    differences: list[Difference] = field(default_factory=list)
    explained: dict[str, int] = field(default_factory=dict)

    def note(self, difference: Difference) -> None:
        reason = reason_for(difference)
        if reason is None:
            self.differences.append(difference)
        else:
            self.explained[reason] = self.explained.get(reason, 0) + 1


def common_versions(theirs: BrokerView, ours: BrokerView) -> dict[ApiKey, tuple[int, int]]:
    """The APIs that both have, with the first and last version that both have."""
    their_versions, our_versions = theirs.versions(), ours.versions()
    common = {}
    for key in map(ApiKey, sorted(their_versions.keys() & our_versions.keys() - LEFT_OUT.keys())):
        first = max(their_versions[key][0], our_versions[key][0])
        last = min(their_versions[key][1], our_versions[key][1])
        if key is ApiKey.PRODUCE:
            first = max(first, 3)  # 0 to 2 are advertised, and refused
        common[key] = (first, last)
    return common


def compare(
    theirs: BrokerView,
    ours: BrokerView,
    *,
    seed: int,
    count: int,
    first_round: int = 0,
    only: set[ApiKey] | None = None,
    verbose: bool = False,
) -> Outcome:
    """Ask both `count` requests."""
    outcome = Outcome()
    versions = common_versions(theirs, ours)
    if only:
        versions = {key: both for key, both in versions.items() if key in only}
    number = first_round
    with ThreadPoolExecutor(2) as pool:

        def both(method: str, *arguments: Any) -> list[Any]:
            return list(pool.map(lambda view: getattr(view, method)(*arguments), (theirs, ours)))

        both("warm_up")
        while outcome.requests < count:
            names = Names(number)
            both("begin", names)
            random = Random(f"{seed}/{number}")
            size = min(ROUND_SIZE, count - outcome.requests)
            compressed: set[str] = set()
            shortened: set[str] = set()
            for at, request in enumerate(make_requests(random, names, versions, size)):
                answers = both("ask", request)
                compressed.update(_given_a_codec(request))
                if request.key is ApiKey.DELETE_RECORDS:
                    shortened.update(topic["name"] for topic in request.fields["topics"])
                past = frozenset(compressed), frozenset(shortened)
                found = list(_found(seed, number, at, request, answers, *past))
                if request.key in _READ_LATE:
                    deadline = monotonic() + 2
                    while not all(map(reason_for, found)) and monotonic() < deadline:
                        answers = both("ask", request)
                        found = list(_found(seed, number, at, request, answers, *past))
                if verbose:
                    print(at, request, "\n   K", answers[0], "\n   o", answers[1], flush=True)
                outcome.requests += 1
                version = (request.key, request.version)
                outcome.asked[version] = outcome.asked.get(version, 0) + 1
                for difference in found:
                    outcome.note(difference)
            both("end")
            number += 1
    return outcome


def _found(
    seed: int,
    number: int,
    at: int,
    request: Request,
    answers: Sequence[Any],
    compressed: frozenset[str],
    shortened: frozenset[str],
) -> Iterator[Difference]:
    theirs, ours = answers
    for where, kafka, own in differences(request, theirs, ours):
        yield Difference(seed, number, at, request, where, kafka, own, (theirs, ours), compressed, shortened)


def _given_a_codec(request: Request) -> Iterator[str]:
    """Yield the topics for which a request sets the codec."""
    for topic in request.fields.get("topics") or () if request.key is ApiKey.CREATE_TOPICS else ():
        if _sets_a_codec(topic):
            yield topic["name"]
    alters = request.key in (ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS)
    for resource in request.fields["resources"] if alters else ():
        if _sets_a_codec(resource):
            yield resource["resource_name"]


def _sets_a_codec(changed: Mapping[str, Any]) -> bool:
    return any(config["name"] == "compression.type" for config in changed["configs"])


def ask_alone(view: BrokerView, versions: Mapping[ApiKey, tuple[int, int]], *, seed: int, count: int) -> list[Any]:
    """Ask one broker alone what `compare` asks both; the answers in order."""
    answers: list[Any] = []
    view.warm_up()
    for number in range(math.ceil(count / ROUND_SIZE)):
        names = Names(number)
        view.begin(names)
        size = min(ROUND_SIZE, count - len(answers))
        answers.extend(
            view.ask(request) for request in make_requests(Random(f"{seed}/{number}"), names, versions, size)
        )
        view.end()
    return answers


def asked(versions: Mapping[ApiKey, tuple[int, int]], *, seed: int, count: int) -> list[Request]:
    """The requests of `ask_alone`."""
    requests: list[Request] = []
    for number in range(math.ceil(count / ROUND_SIZE)):
        size = min(ROUND_SIZE, count - len(requests))
        requests.extend(make_requests(Random(f"{seed}/{number}"), Names(number), versions, size))
    return requests


def differences(request: Request, theirs: Any, ours: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield the path and both values of each field of the answers that differs; keys of ours alone do not count."""
    if request.key is ApiKey.DESCRIBE_CONFIGS and isinstance(theirs, dict) and isinstance(ours, dict):
        ours = {**ours, "results": list(map(_without_own_keys, theirs["results"], ours["results"]))}
    yield from different("", theirs, ours)


def _without_own_keys(kafka: Any, own: Any) -> Any:
    """Return our list of all keys of a broker without those that Kafka does not have; other lists as they are."""
    names = {config["name"] for config in kafka["configs"]}
    if own["resource_type"] != BROKER or len(names) <= _SOME_KEYS:
        return own
    return {**own, "configs": [config for config in own["configs"] if config["name"] in names]}


def different(where: str, theirs: Any, ours: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield the path and both values of each field that differs."""
    if isinstance(theirs, dict) and isinstance(ours, dict) and theirs.keys() == ours.keys():
        for name in theirs:
            yield from different(f"{where}.{name}", theirs[name], ours[name])
    elif isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        for index, (kafka, own) in enumerate(zip(theirs, ours, strict=True)):
            yield from different(f"{where}[{index}]", kafka, own)
    elif theirs != ours:
        yield where, theirs, ours
