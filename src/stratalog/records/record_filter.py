"""A small language of conditions on records, for `--filter` and the console. Nothing of it is run as Python.

    expression = and-expression { "or" and-expression }
    and-expression = not-expression { "and" not-expression }
    not-expression = "not" not-expression | "(" expression ")" | comparison
    comparison = operand [ "exists" | ("==" | "!=" | "<" | "<=" | ">" | ">=" | "~" | "!~" | "in"
                 | "not in") operand ]
    operand = field | text in quotes | number | true | false | null | "[" operand { "," operand } "]"
    field = topic | partition | offset | timestamp | key[path] | value[path] | headers.NAME | headers["NAME"]
    path = { "." NAME | "[" number "]" | "[" text "]" }

A key or value without a path is text; with one it is read as JSON, and what is missing is null. An operand alone is
true unless it is null, false, 0 or empty. Values of different kinds are unequal, and neither is the smaller; but the
text of a key, value or header that reads as a number is that number beside one (`value > 1`), and text beside a text
(`value > "1"`). A timestamp is in ms, and compares with a text as a time (ISO 8601, "-1h").
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

#: A predicate for a record: anything with the attributes `topic`, `partition`, `offset`, `timestamp` and so on.
RecordCondition = Callable[[Any], bool]
#: Gives the value of an operand, or the truth of a condition, for a record.
Evaluator = Callable[[Any], Any]

_TOKEN: Final = re.compile(
    r"""\s*(?:(?P<number>-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)|(?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')"""
    r"""|(?P<name>[A-Za-z_][\w-]*)|(?P<sign>==|!=|<=|>=|!~|&&|\|\||[<>~=!()\[\].,]))"""
)
#: Text of a record that is a number beside a number.
_NUMERAL: Final = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_NUMERAL_LENGTH_MAX: Final = 1000
_FIELDS: Final = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
_CONSTANTS: Final = {"true": True, "false": False, "null": None}
_ORDER: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_QUOTES: Final = "'\""
#: Characters of a condition that an error repeats.
_SHOWN_MAX: Final = 200
_DEPTH_MAX: Final = 50


class FilterError(ValueError):
    """A condition that cannot be read; the message shows where."""


class UntypedText(str):
    """Text of a record, which has no type of its own: beside a number it is the number that it reads as, if any."""

    __slots__ = ()


class TextPattern(Protocol):
    """A regular expression."""

    def search(self, text: str, /) -> object:
        """Return None when it does not occur."""
        ...


@dataclass(frozen=True, slots=True)
class FilterReaders:
    """Parsers for the values of a condition. Each raises ValueError or its own error for a value it cannot parse."""

    #: Milliseconds of a text that a timestamp is compared with.
    moment_ms: Callable[[str], int]
    pattern: Callable[[str], TextPattern] = re.compile
    #: A value of JSON as the text that a pattern is looked for in.
    json_text: Callable[[Any], str] = json.dumps


def compile_condition(text: str, readers: FilterReaders) -> RecordCondition:
    """Return a predicate for records. Raises FilterError."""
    return _Parser(text, readers).parse()


class _Parser:
    """Reads the text from left to right; each method reads one rule of the grammar above."""

    def __init__(self, text: str, readers: FilterReaders) -> None:
        self._text = text
        self._readers = readers
        self._tokens = self._split()
        self._next = 0
        self._depth = 0

    def parse(self) -> RecordCondition:
        found = self._or()
        if self._kind() != "end":
            raise self._error("expected an operator such as ==, and, or")
        return lambda record: bool(found(record))

    # --- words --------------------------------------------------------------------------------------------------------

    def _split(self) -> list[tuple[str, str, int]]:
        found, at = [], 0
        end = len(self._text.rstrip())
        while at < end:
            match = _TOKEN.match(self._text, at)
            if match is None or match.lastgroup is None:
                rest = self._text[at:].lstrip()
                place = f"at {rest[:20].strip()!r} (character {len(self._text) - len(rest) + 1})"
                raise FilterError(
                    f"{'a quote without its end' if rest[0] in _QUOTES else 'cannot read what stands'} {place}"
                )
            found.append((match.lastgroup, match[match.lastgroup], match.start(match.lastgroup)))
            at = match.end()
        return [*found, ("end", "", end)]

    def _kind(self) -> str:
        return self._tokens[self._next][0]

    def _word(self) -> str:
        kind, word, _ = self._tokens[self._next]
        return word if kind in ("sign", "name") else ""

    def _take(self, *words: str) -> bool:
        if self._word() not in words or not self._word():
            return False
        self._next += 1
        return True

    def _expect(self, word: str) -> None:
        if not self._take(word):
            raise self._error(f"expected {word}")

    def _error(self, expected: str) -> FilterError:
        _, _, at = self._tokens[self._next]
        here = self._text[at : at + 20].strip()
        place = f"at {here!r} (character {at + 1})" if here else "at the end"
        return FilterError(f"{self._text[:_SHOWN_MAX]}: {expected} {place}")

    # --- conditions ---------------------------------------------------------------------------------------------------

    def _or(self) -> Evaluator:
        found = [self._and()]
        while self._take("or", "||"):
            found.append(self._and())
        return found[0] if len(found) == 1 else _any_of(found)

    def _and(self) -> Evaluator:
        found = [self._not()]
        while self._take("and", "&&"):
            found.append(self._not())
        return found[0] if len(found) == 1 else _all_of(found)

    def _not(self) -> Evaluator:
        if self._take("not", "!"):
            inner = self._deeper(self._not)
            return lambda record: not inner(record)
        if self._take("("):
            inner = self._deeper(self._or)
            self._expect(")")
            return inner
        return self._comparison()

    def _deeper(self, rule: Callable[[], Evaluator]) -> Evaluator:
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise FilterError("too many conditions within one another")
        found = rule()
        self._depth -= 1
        return found

    def _comparison(self) -> Evaluator:
        is_time = self._word() == "timestamp"
        left = self._operand()
        if self._take("==", "="):
            return _equal(left, self._right(is_time))
        if self._take("!="):
            equal = _equal(left, self._right(is_time))
            return lambda record: not equal(record)
        for sign, compare in _ORDER.items():
            if self._take(sign):
                return _ordered(compare, left, self._right(is_time))
        if self._word() in ("~", "!~"):
            negated = self._word() == "!~"
            self._next += 1
            return _matching(left, self._pattern(), self._readers.json_text, negated=negated)
        if self._take("exists"):
            return lambda record: left(record) is not None
        negated = self._take("not")
        if negated or self._word() == "in":
            self._expect("in")
            return _member(left, self._operand(), negated=negated)
        return left

    def _right(self, is_time: bool) -> Evaluator:
        if not is_time or self._kind() != "text":
            return self._operand()
        text = _unquoted(self._tokens[self._next][1])
        try:
            moment = self._readers.moment_ms(text)
        except ValueError as error:
            raise FilterError(f"timestamp {text!r}: {error}") from None
        self._next += 1
        return lambda _: moment

    def _pattern(self) -> TextPattern:
        if self._kind() != "text":
            raise self._error("expected a regular expression in quotes")
        text = self._tokens[self._next][1][1:-1]
        self._next += 1
        try:
            return self._readers.pattern(text)
        except (re.error, ValueError, OverflowError, RecursionError) as error:
            raise FilterError(f"{text!r} is no regular expression: {error}") from None

    # --- operands -----------------------------------------------------------------------------------------------------

    def _operand(self) -> Evaluator:
        kind, word, _ = self._tokens[self._next]
        if kind == "number":
            self._next += 1
            number = _integer(word) if word.lstrip("-").isdecimal() else float(word)
            return lambda _: number
        if kind == "text":
            self._next += 1
            text = _unquoted(word)
            return lambda _: text
        if self._take("["):
            return self._list()
        if kind != "name":
            raise self._error("expected a field, a text in quotes or a number")
        if word in _CONSTANTS:
            self._next += 1
            constant = _CONSTANTS[word]
            return lambda _: constant
        if word not in _FIELDS:
            raise self._error(f"{word} is no field (texts stand in quotes); fields are {', '.join(_FIELDS)};")
        self._next += 1
        return self._field(word)

    def _list(self) -> Evaluator:
        found: list[Evaluator] = []
        while not self._take("]"):
            if found:
                self._expect(",")
            found.append(self._deeper(self._operand))
        return lambda record: [each(record) for each in found]

    def _field(self, name: str) -> Evaluator:
        path = self._path()
        if name in ("key", "value"):
            return _json_field(name, path) if path else _text_field(name)
        if name == "headers":
            if len(path) != 1 or not isinstance(path[0], str):
                raise self._error('expected a name behind headers: headers.source, headers["x-id"]')
            return _header(path[0])
        if path:
            raise self._error(f"{name} has no parts")
        return operator.attrgetter(name)

    def _path(self) -> list[str | int]:
        path: list[str | int] = []
        while True:
            if self._take("."):
                kind, word, _ = self._tokens[self._next]
                if kind != "name":
                    raise self._error("expected a name behind the dot")
                path.append(word)
                self._next += 1
            elif self._take("["):
                kind, word, _ = self._tokens[self._next]
                if kind not in ("number", "text") or (kind == "number" and not word.lstrip("-").isdecimal()):
                    raise self._error("expected a number or a name in quotes")
                path.append(_integer(word) if kind == "number" else _unquoted(word))
                self._next += 1
                self._expect("]")
            else:
                return path


def _integer(word: str) -> int:
    try:
        return int(word)
    except ValueError:  # more digits than Python reads
        raise FilterError(f"a number of {len(word)} digits") from None


def _unquoted(word: str) -> str:
    return re.sub(r"\\(.)", lambda match: {"n": "\n", "t": "\t"}.get(match[1], match[1]), word[1:-1], flags=re.DOTALL)


def _all_of(conditions: Sequence[Evaluator]) -> Evaluator:
    return lambda record: all(condition(record) for condition in conditions)


def _any_of(conditions: Sequence[Evaluator]) -> Evaluator:
    return lambda record: any(condition(record) for condition in conditions)


def _equal(left: Evaluator, right: Evaluator) -> Evaluator:
    return lambda record: _are_equal(left(record), right(record))


def _are_equal(one: Any, other: Any) -> bool:
    one, other = _beside_each_other(one, other)
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def _ordered(compare: Callable[[Any, Any], bool], left: Evaluator, right: Evaluator) -> Evaluator:
    def evaluate(record: Any) -> bool:
        one, other = _beside_each_other(left(record), right(record))
        alike = (_is_number(one) and _is_number(other)) or (isinstance(one, str) and isinstance(other, str))
        return alike and compare(one, other)

    return evaluate


def _beside_each_other(one: Any, other: Any) -> tuple[Any, Any]:
    """Return two values as they are compared: text of a record beside a number as the number that it reads as."""
    if isinstance(one, UntypedText) and _is_number(other):
        return _numeral(one), other
    if isinstance(other, UntypedText) and _is_number(one):
        return one, _numeral(other)
    return one, other


def _numeral(text: str) -> Any:
    text = text.strip()
    if len(text) > _NUMERAL_LENGTH_MAX or _NUMERAL.fullmatch(text) is None:
        return text
    try:
        return int(text)
    except ValueError:
        return float(text)


def _matching(left: Evaluator, pattern: TextPattern, json_text: Callable[[Any], str], *, negated: bool) -> Evaluator:
    def evaluate(record: Any) -> bool:
        value = left(record)
        text = None if value is None else value if isinstance(value, str) else json_text(value)
        return (text is not None and pattern.search(text) is not None) != negated

    return evaluate


def _member(left: Evaluator, right: Evaluator, *, negated: bool) -> Evaluator:
    def evaluate(record: Any) -> bool:
        one, many = left(record), right(record)
        if isinstance(many, str):
            found = isinstance(one, str) and one in many
        else:
            found = isinstance(many, list | dict) and any(_are_equal(one, each) for each in many)
        return found != negated

    return evaluate


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _text_field(name: str) -> Evaluator:
    get = operator.attrgetter(name)

    def evaluate(record: Any) -> Any:
        value = get(record)
        return UntypedText(value.decode(errors="backslashreplace")) if isinstance(value, bytes) else value

    return evaluate


def _json_field(name: str, path: list[str | int]) -> Evaluator:
    get = operator.attrgetter(name)

    def evaluate(record: Any) -> Any:
        value = get(record)
        if isinstance(value, bytes):
            try:
                value = json.loads(value)
            except (ValueError, RecursionError):
                return None
        for step in path:
            try:
                value = value[step]
            except (KeyError, IndexError, TypeError):
                return None
        return value

    return evaluate


def _header(name: str) -> Evaluator:
    def evaluate(record: Any) -> str | None:
        """Return the last header of the name, as Kafka's `lastHeader`."""
        found = [value for key, value in record.headers if key == name]
        last = found[-1] if found else None
        return None if last is None else UntypedText(last.decode(errors="backslashreplace"))

    return evaluate
