"""What a crash may leave of a lossy file system, and what it must."""

from __future__ import annotations

from pathlib import Path

import pytest

from stratalog.testing.lossy_filesystem import Killed, LossyFileSystem

SEEDS = range(40)


def survivors(tmp_path: Path, seed: int) -> tuple[LossyFileSystem, Path]:
    root = tmp_path / str(seed)
    root.mkdir()
    return LossyFileSystem(root, seed), root


def test_what_was_synced_survives_every_crash(tmp_path: Path) -> None:
    for seed in SEEDS:
        fs, root = survivors(tmp_path, seed)
        with fs.open(root / "a", create=True) as file:
            file.write_at(b"x" * 5_000, 0)
            file.sync()
            file.write_at(b"y" * 9_000, 5_000)
        fs.sync_dir(root)
        fs.crash()
        data = (root / "a").read_bytes()
        assert data[:4_096] == b"x" * 4_096
        assert len(data) >= 5_000


def test_what_was_not_synced_is_there_sometimes(tmp_path: Path) -> None:
    outcomes = set()
    for seed in SEEDS:
        fs, root = survivors(tmp_path, seed)
        with fs.open(root / "a", create=True) as file:
            file.write_at(b"y" * 5_000, 0)
        fs.sync_dir(root)
        fs.crash()
        outcomes.add(len((root / "a").read_bytes().rstrip(b"\0")))
    assert {0, 5_000} & outcomes
    assert len(outcomes) > 3


def test_names_survive_in_the_order_of_their_changes(tmp_path: Path) -> None:
    outcomes = set()
    for seed in SEEDS:
        fs, root = survivors(tmp_path, seed)
        for name in ("a", "b", "c"):
            fs.open(root / name, create=True).close()
        fs.rename(root / "a", root / "d")
        fs.crash()
        outcomes.add("".join(sorted(path.name for path in root.iterdir())))
    assert outcomes == {"", "a", "ab", "abc", "bcd"}


def test_a_removed_file_may_come_back_with_its_content(tmp_path: Path) -> None:
    outcomes = set()
    for seed in SEEDS:
        fs, root = survivors(tmp_path, seed)
        with fs.open(root / "a", create=True) as file:
            file.write_at(b"here", 0)
            file.sync()
        fs.sync_dir(root)
        fs.remove(root / "a")
        fs.crash()
        outcomes.add((root / "a").read_bytes() if (root / "a").exists() else None)
    assert outcomes == {None, b"here"}


def test_without_power_loss_everything_written_is_there(tmp_path: Path) -> None:
    fs = LossyFileSystem(tmp_path)
    with fs.open(tmp_path / "a", create=True) as file:
        file.write_at(b"y" * 5_000, 0)
    fs.crash(power_loss=False)
    assert (tmp_path / "a").read_bytes() == b"y" * 5_000


def test_a_kill_may_cut_a_write_short(tmp_path: Path) -> None:
    sizes = set()
    for seed in SEEDS:
        fs, root = survivors(tmp_path, seed)
        file = fs.open(root / "a", create=True)
        fs.kill_at = 0
        with pytest.raises(Killed):
            file.write_at(b"y" * 100, 0)
        fs.crash(power_loss=False)
        sizes.add((root / "a").stat().st_size)
    assert len(sizes) > 10
    assert max(sizes) <= 100


def test_a_full_disk_takes_what_fits(tmp_path: Path) -> None:
    fs = LossyFileSystem(tmp_path)
    fs.bytes_left = 10
    file = fs.open(tmp_path / "a", create=True)
    assert file.write_at(b"123456", 0) == 6
    with pytest.raises(OSError, match="No space left"):
        file.writev_at([b"abc", b"defgh"], 6)
    assert (tmp_path / "a").read_bytes() == b"123456abcd"
