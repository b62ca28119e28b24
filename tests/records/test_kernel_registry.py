"""The registry of native loops: it knows them all, and after its warm-up nothing is compiled any more."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from stratalog.records.native.registry import KERNELS

SOURCES = Path(__file__).parents[2] / "src"
REGISTERED = [module for modules in KERNELS.values() for module in modules]

#: Loops that take arrays: they need numba's runtime, and are read from its cache.
OF_NUMBA = {
    "stratalog.jobs.compaction.keys_kernel.scatter",
    "stratalog.jobs.compaction.newest_kernel.rehash",
    "stratalog.jobs.compaction.newest_kernel.sift",
}

_LOOPS = """
import json, sys, types
from stratalog.records.native.registry import warm

warm(*sys.argv[1:])
found = {}
for module in list(sys.modules.values()):
    for name, each in list(vars(module).items()):
        if module.__name__.startswith("stratalog.") and getattr(each, "__module__", None) == module.__name__:
            if isinstance(each, types.BuiltinFunctionType):
                found[f"{module.__name__}.{name}"] = "kept"
            elif type(each).__name__ == "CPUDispatcher":
                found[f"{module.__name__}.{name}"] = [len(each.signatures), each._can_compile]
print(json.dumps([found, "numba" in sys.modules]))
"""


def loops(*uses: str) -> tuple[dict[str, Any], bool]:
    """What a process has of the loops of these uses once they are warm, and whether it has loaded numba."""
    done = subprocess.run([sys.executable, "-c", _LOOPS, *uses], capture_output=True, text=True, check=True)
    found, with_numba = json.loads(done.stdout)
    return found, with_numba


def test_every_loop_that_python_calls_is_registered_once() -> None:
    found = [
        ".".join(path.relative_to(SOURCES).with_suffix("").parts)
        for path in SOURCES.rglob("*.py")
        if re.search(r"^@compiled\(", path.read_text(), re.MULTILINE)
    ]
    assert sorted(REGISTERED) == sorted(found)


def test_the_warm_up_has_every_loop_and_leaves_none_to_compile() -> None:
    found, _ = loops()
    called = [
        f"{module}.{name}"
        for module in REGISTERED
        for name in re.findall(
            r"^@compiled\([^\n]*\)\ndef (\w+)\(",
            (SOURCES / Path(*module.split("."))).with_suffix(".py").read_text(),
            re.MULTILINE,
        )
    ]
    assert len(called) >= len(REGISTERED)
    assert {name for name in called if found[name] not in ("kept", [1, False])} == set()


@pytest.mark.skipif(sys.platform != "linux", reason="objects of other systems are not kept")
def test_a_second_process_loads_no_numba_but_for_loops_that_take_arrays() -> None:
    loops()  # compiles what is not kept
    assert {name for name, how in loops()[0].items() if how != "kept" and how[1] is False} == OF_NUMBA
    assert not loops(*(use for use in KERNELS if use != "compact"))[1]


def test_the_registry_itself_loads_no_numba() -> None:
    code = "import sys, stratalog.records.native.registry; print('numba' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
