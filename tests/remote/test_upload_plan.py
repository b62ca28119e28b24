"""Parts of an upload: few enough for any store, and small enough for memory, however large the object."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from stratalog.errors import RetriableRemoteStorageError
from stratalog.remote.storage import object_store
from stratalog.remote.storage.object_store import ObjectStore, UploadPlan

MIB, GIB, TIB = 2**20, 2**30, 2**40


@pytest.mark.parametrize(
    ("size", "part_bytes", "parts_at_once"),
    [
        (0, 8 * MIB, 4),
        (6 * GIB, 8 * MIB, 4),
        (10_000 * 8 * MIB, 8 * MIB, 4),
        (10_000 * 8 * MIB + 1, 9 * MIB, 3),
        (200 * GIB, 21 * MIB, 1),
        (5 * TIB, 525 * MIB, 1),
    ],
)
def test_parts_grow_with_the_object(size: int, part_bytes: int, parts_at_once: int) -> None:
    assert UploadPlan.of(size) == UploadPlan(part_bytes, parts_at_once)


@settings(deadline=None)
@given(st.integers(0, 5 * TIB))
def test_no_object_has_more_parts_than_a_store_takes(size: int) -> None:
    """10,000 parts of the planned size hold any object of up to 5 TiB, and memory holds 32 MiB of them or a single
    one."""
    plan = UploadPlan.of(size)
    assert plan.part_bytes * 10_000 >= size
    assert 8 * MIB <= plan.part_bytes <= 5 * GIB
    assert plan.part_bytes % MIB == 0
    assert plan.parts_at_once == 1 or plan.part_bytes * plan.parts_at_once <= 32 * MIB


def test_an_upload_is_cut_as_planned_and_tells_of_its_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a limit of three parts, a file of five pieces goes in larger ones."""
    monkeypatch.setattr(object_store, "UPLOAD_PARTS_MAX", 3)
    store = ObjectStore.from_url("memory:///")
    sent: list[dict[str, Any]] = []
    obstore: Any = store._obstore  # type: ignore[attr-defined]
    put = obstore.put

    class Recording:
        exceptions = obstore.exceptions
        get, head = obstore.get, obstore.head

        @staticmethod
        def put(*args: Any, **options: Any) -> Any:
            sent.append(options)
            return put(*args, **options)

    store._obstore = Recording  # type: ignore[attr-defined]
    size = 4 * object_store.UPLOAD_PART_BYTES + 5
    path = tmp_path / "file"
    with path.open("wb") as file:
        file.truncate(size)
    moved: list[int] = []
    uploaded = store.put_file("key", path, progress=moved.append)
    assert uploaded.size == store.head("key").size == size
    assert sent == [{"chunk_size": 11 * MIB, "max_concurrency": 2}]
    assert moved == [n * object_store.UPLOAD_PART_BYTES for n in range(5)]


def test_an_upload_that_is_given_up_leaves_no_object(tmp_path: Path) -> None:
    store = ObjectStore.from_url(tmp_path.as_uri() + "/store")
    path = tmp_path / "file"
    with path.open("wb") as file:
        file.truncate(3 * object_store.UPLOAD_PART_BYTES)

    def give_up(position: int) -> None:
        if position:
            raise RetriableRemoteStorageError("enough")

    with pytest.raises(RetriableRemoteStorageError, match="enough"):
        store.put_file("key", path, progress=give_up)
    assert list(store.list()) == []
