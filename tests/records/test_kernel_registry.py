"""The registry of native loops: it knows them all, and after its warm-up nothing is compiled any more."""

import json
import re
import subprocess
import sys
from pathlib import Path

from stratalog.records.native.registry import KERNELS

SOURCES = Path(__file__).parents[2] / "src"
REGISTERED = [module for modules in KERNELS.values() for module in modules]

_LOOPS = """
import json, sys
from numba.core.registry import CPUDispatcher
from stratalog.records.native.registry import warm

warm()
loops = {
    f"{module.__name__}.{name}": each
    for module in list(sys.modules.values()) if module.__name__.startswith("stratalog.")
    for name, each in list(vars(module).items())
    if isinstance(each, CPUDispatcher) and each.py_func.__module__ == module.__name__
}
print(json.dumps({name: [len(each.signatures), each._can_compile] for name, each in loops.items()}))
"""


def test_every_loop_that_python_calls_is_registered_once() -> None:
    found = [
        ".".join(path.relative_to(SOURCES).with_suffix("").parts)
        for path in SOURCES.rglob("*.py")
        if re.search(r"^@compiled\(", path.read_text(), re.MULTILINE)
    ]
    assert sorted(REGISTERED) == sorted(found)


def test_the_warm_up_compiles_the_one_signature_of_each_loop_and_leaves_none_to_compile() -> None:
    done = subprocess.run([sys.executable, "-c", _LOOPS], capture_output=True, text=True, check=True)
    loops = json.loads(done.stdout)
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
    assert {name: loops[name] for name in called} == {name: [1, False] for name in called}


def test_the_registry_itself_loads_no_numba() -> None:
    code = "import sys, stratalog.records.native.registry; print('numba' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
