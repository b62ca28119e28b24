from __future__ import annotations

import uuid

import pytest

from stratalog.util.uuids import random_uuid, uuid_from_base64, uuid_to_base64


def test_spelling_is_kafkas() -> None:
    value = uuid.UUID("ad0f5f1a-6e1f-4d8b-9c5b-0f1e2d3c4b5a")
    assert uuid_to_base64(value) == "rQ9fGm4fTYucWw8eLTxLWg"
    assert uuid_from_base64("rQ9fGm4fTYucWw8eLTxLWg") == value


def test_random_ids_never_begin_like_an_option() -> None:
    assert not any(uuid_to_base64(random_uuid()).startswith("-") for _ in range(500))


@pytest.mark.parametrize("text", ["", "abc", "rQ9fGm4fTYucWw8eLTxLWgAAAA", "ä"])
def test_bad_spellings_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"UUID|base64|ASCII"):
        uuid_from_base64(text)
