"""Words that a reader of today stumbles over stay out of sources, pages and tests. CONTRIBUTING names the style."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SUFFIXES = {".py", ".pyi", ".md", ".html", ".js", ".java"}

#: What to write instead, by the word to avoid, for sources and pages.
INSTEAD = {
    "anew": "again, or rebuild",
    "heed": "use, respect",
    "lest": "so that ... not",
    "meanwhile": "concurrently, until then, or leave it out",
    "nobody": "no client, no caller, unknown",
    "of its own accord": "by itself",
    "taken back": "removed, aborted, reverted",
    "whoever": "a caller, a client, the broker that",
}
#: The same for tests, whose names and docstrings are read as sentences.
IN_TESTS = {word: INSTEAD[word] for word in ("anew", "heed", "lest", "meanwhile", "of its own accord", "whoever")}

#: This file, and the cases of a golden whose topic has one of the words as its name.
LEFT_ALONE = {
    Path(__file__),
    ROOT / "tests/broker/share/change_cases.py",
    ROOT / "tests/broker/share/test_changes_as_kafka.py",
}


def _pattern(words: dict[str, str]) -> re.Pattern[str]:
    """Match a word in a sentence or in the name of a test, but no constant in capitals."""
    alternatives = "|".join(f"[{word[0].upper()}{word[0]}]{word[1:].replace(' ', '[ _]')}" for word in words)
    return re.compile(rf"(?<![A-Za-z])({alternatives})(?![A-Za-z])")


def _findings(folder: Path, words: dict[str, str]) -> list[str]:
    """Return a line for each word to avoid: where it is, and what to write instead."""
    pattern = _pattern(words)
    return [
        f"{path.relative_to(ROOT)}:{number}: {match[0]!r}; write {words[match[0].lower().replace('_', ' ')]}"
        for path in sorted(folder.rglob("*"))
        if path.suffix in SUFFIXES and "golden" not in path.parts and path not in LEFT_ALONE
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        for match in pattern.finditer(line)
    ]


@pytest.mark.parametrize(("folder", "words"), [("src", INSTEAD), ("docs", INSTEAD), ("tests", IN_TESTS)])
def test_words_to_avoid_are_in_no_file(folder: str, words: dict[str, str]) -> None:
    if folder == "docs":  # tables of tests have the names of tests
        found = [each for each in _findings(ROOT / folder, words) if not each.startswith("docs/compatibility/")]
    else:
        found = _findings(ROOT / folder, words)
    assert not found, "\n".join(found)


@pytest.mark.parametrize("text", ["It is made Anew.", "def test_an_index_made_anew_again", "it is taken back"])
def test_a_word_is_found_in_a_sentence_and_in_a_name(text: str) -> None:
    assert _pattern(INSTEAD).search(text)


@pytest.mark.parametrize("text", ["the blest", "NOBODY = object()", "again"])
def test_other_words_and_constants_are_left_alone(text: str) -> None:
    assert not _pattern(INSTEAD).search(text)
