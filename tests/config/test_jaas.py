"""Lines of JAAS: what Kafka takes is taken, and what it refuses, such as a line that was cut, is none."""

from __future__ import annotations

import pytest

from stratalog.config.jaas import jaas_module, jaas_options

_LINE = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_me="hush" user_you="more";'


def test_a_whole_line_has_a_module_and_options() -> None:
    assert jaas_module(_LINE) == "PlainLoginModule"
    assert jaas_options(_LINE) == {"user_me": "hush", "user_you": "more"}


def test_every_line_that_was_cut_is_none() -> None:
    for length in range(len(_LINE)):
        assert jaas_options(_LINE[:length]) is None


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("x.PlainLoginModule required;", {}),
        ("PlainLoginModule Sufficient user_a='it is \"a\"' ;\n", {"user_a": 'it is "a"'}),
        (r'M optional a="q\"b\\c\td\101;";', {"a": 'q"b\\c\tdA;'}),
        ("M requisite a=b-c d=e;", {"a": "b-c", "d": "e"}),
    ],
)
def test_forms_of_a_line(text: str, options: dict[str, str]) -> None:
    assert jaas_options(text) == options


@pytest.mark.parametrize(
    "text",
    [
        "",
        "PlainLoginModule;",
        'PlainLoginModule needed user_a="b";',
        'PlainLoginModule required user_a "b";',
        'PlainLoginModule required user_a="b" junk user_c="d";',
        'PlainLoginModule required // user_a="b";',
        'PlainLoginModule required user_a="b"user_c="d";',
        'ScramLoginModule required; PlainLoginModule required user_a="b";',
        'PlainLoginModule required user_a="b";;',
        'PlainLoginModule required user_a="b\nc";',
    ],
)
def test_what_is_no_single_entry_is_none(text: str) -> None:
    assert jaas_options(text) is None
    assert jaas_module(text) is None
