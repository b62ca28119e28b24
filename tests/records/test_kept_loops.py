"""Loops that are kept as machine code: used where everything fits, else compiled again; never a crash."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from stratalog.records.native import kept_loops
from stratalog.records.native.registry import KERNELS, SHARED

LOOP = """
import sys
from stratalog.records.native.toolkit import as_i64, compiled, inlined, native

@inlined
def more(value):
    return value + 1

@native
def twice(value):
    return more(value) + more(value)

@compiled("int64(int64, boolean)")
def added(value, doubled):
    return twice(value) if doubled else more(value)

@compiled("UniTuple(int64, 2)(int64)")
def both(value):
    return value, -value

@compiled("void(int64)", nogil=False)
def count_up(address):
    as_i64(address)[0] += 1

def numba_is_loaded():
    return "numba" in sys.modules
"""
USE = """
import ctypes, loops
counted = ctypes.c_int64(41)
loops.count_up(ctypes.addressof(counted))
print(loops.added(20, True), loops.added(20, False), loops.both(7), counted.value, loops.numba_is_loaded())
"""
RIGHT = "42 21 (7, -7) 42"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="objects of other systems are not kept")


def run(directory: Path, code: str = USE, **environment: str) -> str:
    """What `code` prints with a module `loops` in `directory`, beside which its loops are kept."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA")}
    variables |= {"PYTHONPATH": str(directory), "PYTHONDONTWRITEBYTECODE": "1", **environment}
    done = subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A module whose loops are kept."""
    directory = tmp_path_factory.mktemp("kept")
    (directory / "loops.py").write_text(LOOP)
    assert run(directory) == f"{RIGHT} True"
    return directory


def copy_of(kept: Path, directory: Path) -> list[Path]:
    """The same module, with the times that it had, and the files of its loops."""
    files = [kept / "loops.py", *sorted((kept / "__pycache__").glob("loops.*.loop"))]
    (directory / "__pycache__").mkdir()
    for path in files:
        target = directory / path.relative_to(kept)
        target.write_bytes(path.read_bytes())
        os.utime(target, ns=(path.stat().st_mtime_ns, path.stat().st_mtime_ns))
    return [directory / path.relative_to(kept) for path in files[1:]]


def test_a_kept_loop_is_called_without_numba(kept: Path) -> None:
    assert run(kept) == f"{RIGHT} False"


def test_a_kept_loop_refuses_what_it_cannot_take(kept: Path) -> None:
    code = """
import loops
for wrong in ((1,), (None, True), (1, True, 2), (2**70, True)):
    try:
        print(loops.added(*wrong))
    except (TypeError, OverflowError) as error:
        print(type(error).__name__)
"""
    assert run(kept, code).split() == ["TypeError", "TypeError", "TypeError", "OverflowError"]


def test_a_loop_lets_other_threads_run_unless_it_says_so(kept: Path, tmp_path: Path) -> None:
    """Both kinds are kept with their own signature; here only that both can be called by several threads at once."""
    code = """
import ctypes, threading, loops
counted = [ctypes.c_int64(0) for _ in range(4)]
def work(n):
    for _ in range(2000):
        loops.count_up(ctypes.addressof(counted[n]))
        assert loops.added(n, False) == n + 1
threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
[each.start() for each in threads]
[each.join() for each in threads]
print([each.value for each in counted])
"""
    assert run(kept, code) == "[2000, 2000, 2000, 2000]"


@pytest.mark.parametrize("damage", ["empty", "cut", "flipped", "no object"])
def test_a_damaged_file_is_compiled_again_and_replaced(kept: Path, tmp_path: Path, damage: str) -> None:
    for path in copy_of(kept, tmp_path):
        data = bytearray(path.read_bytes())
        if damage == "cut":
            del data[len(data) // 2 :]
        elif damage == "flipped":
            data[len(data) // 2] ^= 1
        else:
            data = bytearray() if damage == "empty" else bytearray(b"x" * 500)
        path.write_bytes(data)
    assert run(tmp_path) == f"{RIGHT} True"
    assert run(tmp_path) == f"{RIGHT} False"


def test_a_loop_of_another_source_is_not_used(kept: Path, tmp_path: Path) -> None:
    copy_of(kept, tmp_path)
    source = (tmp_path / "loops.py").read_text()
    (tmp_path / "loops.py").write_text(source.replace("value + 1", "value + 2"))
    assert run(tmp_path) == "44 22 (7, -7) 42 True"
    assert run(tmp_path) == "44 22 (7, -7) 42 False"


def test_a_loop_for_another_processor_is_not_used(kept: Path) -> None:
    generic = {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}
    assert run(kept, **generic) == f"{RIGHT} True"
    assert run(kept, **generic) == f"{RIGHT} False"
    assert run(kept) == f"{RIGHT} False"


def test_loops_are_kept_where_numba_is_configured_to(kept: Path, tmp_path: Path) -> None:
    where = {"NUMBA_CACHE_DIR": str(tmp_path)}
    assert run(kept, **where) == f"{RIGHT} True"
    assert run(kept, **where) == f"{RIGHT} False"
    assert list((tmp_path / "stratalog").glob("loops.added.*.loop"))


def test_a_loop_that_wants_more_than_python_has_is_not_kept(tmp_path: Path) -> None:
    """One that takes arrays needs numba's runtime: LLVM would end the process for a symbol that is missing."""
    (tmp_path / "loops.py").write_text(
        "import sys\nimport numpy as np\nfrom stratalog.records.native.toolkit import compiled\n"
        '@compiled("int64(int64[::1])")\ndef first(values):\n    return values[0]\n'
        'print(first(np.arange(3) + 5), "numba" in sys.modules)\n'
    )
    assert run(tmp_path, "import loops") == "5 True"
    assert run(tmp_path, "import loops") == "5 True"
    assert not list(tmp_path.rglob("*.loop"))


def test_a_user_without_a_home_has_the_loops_that_are_beside_their_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    assert [path.parent.name for path in kept_loops._places(no_home)] == ["__pycache__"]
    assert kept_loops.load(no_home, "void()") is None


def test_what_is_no_object_wants_nothing(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="ELF"):
        kept_loops.wanted_symbols(b"\x7fELF\x01")


def test_the_sources_of_loops_are_all_known() -> None:
    """A loop has parts of other modules: one that changes must not be overlooked."""
    code = """
import sys
from stratalog.records.native import lazy
seen = set()
make = lazy.make_globals
def noted(function):
    seen.add(function.__module__)
    make(function)
from stratalog.records.native import compiling, toolkit, registry
compiling.make_globals = toolkit.make_globals = noted
registry.warm()
print(*sorted(seen))
"""
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "from stratalog.records.native import kept_loops\nkept_loops._is_possible = lambda: False\n" + code,
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    known = {*SHARED, *(module for modules in KERNELS.values() for module in modules)}
    assert set(done.stdout.split()) - known == set()
    assert "stratalog.records.native.record" in done.stdout.split()
