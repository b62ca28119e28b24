"""The native loops without a cache: numba's directories cannot be written to, or what is in them cannot be read."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

LOOP = """
from stratalog.records.native.toolkit import compiled, native

@native
def more(value):
    return value + 1

@compiled("int64(int64)")
def twice_more(value):
    return more(value) + more(value)

print(twice_more(20))
"""
FULL_DISK = """
import errno
from numba.core.caching import IndexDataCacheFile

def full(*_):
    raise OSError(errno.ENOSPC, "No space left on device")

IndexDataCacheFile._save_data = full
"""

READ_ONLY_DISK = """
import errno
from numba.core.caching import IndexDataCacheFile, _CacheLocator

def refuse(*_):
    raise OSError(errno.EROFS, "Read-only file system")

IndexDataCacheFile._save_data = IndexDataCacheFile._save_index = refuse
_CacheLocator.ensure_cache_path = refuse
"""


def run(
    directory: Path, cache: Path, code: str = LOOP, *, before: str = "", beside_the_source: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run a module of `directory` whose loops numba can keep in `cache` at most, or beside it."""
    module = directory / "loops.py"
    if not module.exists():
        module.write_text(code)
        if not beside_the_source:
            # As in a package that is installed read-only: root may write to any directory, but not into a file.
            (directory / "__pycache__").write_text("")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA")}
    environment |= {
        "PYTHONDONTWRITEBYTECODE": "1",
        "HOME": str(cache),
        "XDG_CACHE_HOME": str(cache),
        "PYTHONPATH": str(directory),
    }
    return subprocess.run(
        [sys.executable, "-c", f"{before}\nimport loops"], env=environment, capture_output=True, text=True, check=False
    )


def forget_kept(directory: Path) -> None:
    """Leave numba's own cache alone."""
    for path in directory.rglob("*.loop"):
        path.unlink()


def test_loops_are_compiled_where_no_cache_can_be_written(tmp_path: Path) -> None:
    unwritable = tmp_path / "cache"
    unwritable.write_text("")
    done = run(tmp_path, unwritable)
    assert (done.returncode, done.stdout) == (0, "42\n"), done.stderr
    assert done.stderr.count("NUMBA_CACHE_DIR") == 1


def test_loops_that_were_compiled_at_the_installation_are_read_from_a_read_only_disk(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    assert run(tmp_path, cache, beside_the_source=True).stderr == ""
    forget_kept(tmp_path)
    done = run(tmp_path, cache, before=READ_ONLY_DISK)
    assert (done.returncode, done.stdout, done.stderr) == (0, "42\n", "")
    for kept in (tmp_path / "__pycache__").glob("loops.*.nb?"):
        kept.unlink()
    forget_kept(tmp_path)
    assert "NUMBA_CACHE_DIR" in run(tmp_path, cache, before=READ_ONLY_DISK).stderr


def test_loops_are_compiled_where_the_disk_of_the_cache_is_full(tmp_path: Path) -> None:
    done = run(tmp_path, tmp_path / "cache", FULL_DISK + LOOP)
    assert (done.returncode, done.stdout) == (0, "42\n"), done.stderr
    assert "No space left" in done.stderr


@pytest.mark.parametrize("suffix", ["nbi", "nbc"])
def test_a_cache_file_that_a_power_failure_left_empty_is_written_again(tmp_path: Path, suffix: str) -> None:
    cache = tmp_path / "cache"
    assert run(tmp_path, cache).stderr == ""
    files = sorted(cache.rglob(f"*twice_more*.{suffix}"))
    assert files
    for path in files:
        path.write_bytes(b"")
    forget_kept(tmp_path)
    done = run(tmp_path, cache)
    assert (done.returncode, done.stdout) == (0, "42\n"), done.stderr
    assert "cannot be read" in done.stderr
    assert all(path.stat().st_size for path in files)
    forget_kept(tmp_path)
    assert run(tmp_path, cache).stderr == ""
