"""Regular expressions of subscriptions in RE2 syntax, matched against whole topic names.

RE2 matches in linear time: no expression of a client can keep the broker busy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import re2

from stratalog.broker.groups.consumer.values import ResolvedRegex
from stratalog.errors import InvalidRegularExpressionError

#: Returns the topics that a client may describe.
TopicFilter = Callable[[Iterable[str]], set[str]]

#: Kafka's (RE2/J's) reason for an invalid expression, by the beginning of RE2's.
_REASONS = {
    "missing )": "missing closing )",
    "missing ]": "missing closing ]",
    "unexpected )": "regexp/syntax: internal error",
    "no argument for repetition operator": "missing argument to repetition operator",
    "trailing \\": "trailing backslash at end of expression",
    "invalid named capture group": "invalid named capture",
    "invalid repetition size": "invalid repeat count",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "bad repetition operator": "invalid nested repetition operator",
}


def _options() -> re2.Options:
    options = re2.Options()
    options.log_errors = False
    return options


_OPTIONS = _options()


def check_regex(regex: str) -> None:
    """Raise InvalidRegularExpressionError for an expression that is invalid in RE2/J."""
    reason = _fault(regex)
    if reason is not None:
        raise InvalidRegularExpressionError(
            f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {reason}."
        )


def _fault(regex: str) -> str | None:
    try:
        compiled = re2.compile(regex, _OPTIONS)
    except re2.error as error:
        said = error.args[0] if error.args else b""
        text = said.decode(errors="replace") if isinstance(said, bytes) else str(said)
        # RE2 appends the part that is invalid
        return next((there for here, there in _REASONS.items() if text.startswith(here)), text.partition(": ")[0])
    if len(compiled.groupindex) < regex.count("(?P<") + regex.count("(?<") and _has_name_twice(regex):
        return "duplicate capture group name"
    return "invalid escape sequence" if _matches_single_bytes(regex) else None


def _has_name_twice(regex: str) -> bool:
    names = [part.partition(">")[0] for marker in ("(?P<", "(?<") for part in regex.split(marker)[1:]]
    return len(names) != len(set(names))


def _matches_single_bytes(regex: str) -> bool:
    """Return whether there is a `\\C`, which RE2 supports and RE2/J does not."""
    return "C" in [regex[at + 1 : at + 2] for at in _escapes(regex)]


def _escapes(regex: str) -> Iterable[int]:
    at = regex.find("\\")
    while at >= 0:
        yield at
        at = regex.find("\\", at + 2)


def resolve_regexes(
    regexes: Iterable[str], topics: Iterable[str], *, version: int, now_ms: int
) -> Mapping[str, ResolvedRegex]:
    """Return the topics that each expression matches; none for an invalid one. Thread-safe."""
    names = list(topics)
    found: dict[str, ResolvedRegex] = {}
    for regex in regexes:
        matched: frozenset[str] = frozenset()
        if _fault(regex) is None:
            pattern = re2.compile(regex, _OPTIONS)
            matched = frozenset([name for name in names if pattern.fullmatch(name)])
        found[regex] = ResolvedRegex(matched, version, now_ms)
    return found
