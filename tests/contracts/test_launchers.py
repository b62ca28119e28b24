"""`./stratalog` and `./run-tests` set up once, say in a line why they cannot, and then cost next to nothing.

Each test runs the real launchers in a copy of the repository that holds no more than they need, with a `PATH` of its
own. No network is used: where the set-up has to go on, pip's and uv's parts are played by small scripts.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOOLS = ("sh", "cat", "cksum", "dirname", "readlink")

#: Stands for uv: makes the environment and says what `stratalog` and pytest were called with.
FAKE_UV = """#!/bin/sh
echo synced >> syncs
[ -z "$FAKE_UV_FAILS" ] || { echo "no space left on the device"; exit "$FAKE_UV_FAILS"; }
[ -z "$FAKE_UV_WAITS" ] || sleep "$FAKE_UV_WAITS"
mkdir -p "$UV_PROJECT_ENVIRONMENT/bin"
touch "$UV_PROJECT_ENVIRONMENT/pyvenv.cfg"
printf '#!/bin/sh\\necho "stratalog $*"\\n' > "$UV_PROJECT_ENVIRONMENT/bin/stratalog"
printf '#!/bin/sh\\ncase "$2" in *warm*) ;; *) exec PYTHON "$@" ;; esac\\n' > "$UV_PROJECT_ENVIRONMENT/bin/python"
chmod +x "$UV_PROJECT_ENVIRONMENT/bin/"*
"""


@dataclass
class Checkout:
    """A copy of what the launchers need, and the programs that they may find."""

    root: Path
    path: Path

    def add_program(self, name: str, script: str) -> None:
        file = self.path / name
        file.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        file.chmod(0o755)

    def add_python(self) -> None:
        """The one that this environment was made from, which has pip or could fetch it."""
        self.add_program("python3", f'exec {sys._base_executable} "$@"')  # type: ignore[attr-defined]

    def start(self, *command: str, **environment: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [str(self.root / command[0]), *command[1:]],
            env={
                "PATH": str(self.path),
                "HOME": str(self.root),
                "FAKE_UV_FAILS": "",
                "FAKE_UV_WAITS": "",
                **environment,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
        process = self.start(*command, **environment)
        out, err = process.communicate(timeout=60)
        return subprocess.CompletedProcess(command, process.returncode, out, err)

    @property
    def syncs(self) -> int:
        file = self.root / "syncs"
        return len(file.read_text().splitlines()) if file.exists() else 0


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    root, path = tmp_path / "repo with space", tmp_path / "bin"
    path.mkdir()
    for tool in TOOLS:
        found = shutil.which(tool)
        assert found
        (path / tool).symlink_to(found)
    (root / "tools").mkdir(parents=True)
    for name in (
        "stratalog",
        "run-tests",
        "tools/environment.sh",
        "tools/set_up.py",
        "pyproject.toml",
        "uv.lock",
    ):
        shutil.copy(ROOT / name, root / name)
    return Checkout(root, path)


@pytest.fixture
def with_uv(checkout: Checkout) -> Checkout:
    """A checkout whose uv is there, and is ours; with a Java."""
    checkout.add_python()
    for tool in ("mkdir", "touch", "chmod", "sleep"):
        found = shutil.which(tool)
        assert found
        (checkout.path / tool).symlink_to(found)
    checkout.add_program("java", "echo 'openjdk version \"17.0.1\"' >&2")
    version = subprocess.run(
        [sys.executable, "-c", "import runpy; print(runpy.run_path('tools/set_up.py')['UV_VERSION'])"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    uv = checkout.root / ".setup" / f"uv-{version}" / "bin" / "uv"
    uv.parent.mkdir(parents=True)
    uv.write_text(FAKE_UV.replace("PYTHON", sys.executable), encoding="utf-8")
    uv.chmod(0o755)
    return checkout


@pytest.mark.parametrize("launcher", ["stratalog", "run-tests"])
def test_no_python_is_reported_in_a_line(checkout: Checkout, launcher: str) -> None:
    done = checkout.run(launcher)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "Python 3.11 or newer" in done.stderr


def test_an_old_python_is_reported_in_a_line(checkout: Checkout) -> None:
    checkout.add_program("python3", "exit 3")
    done = checkout.run("stratalog")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "python3 is older" in done.stderr


def test_a_python_without_any_pip_is_reported_in_a_line(checkout: Checkout) -> None:
    checkout.add_program("python3", "exit 4")
    done = checkout.run("stratalog")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "apt install python3-venv" in done.stderr


def test_a_later_python_of_the_list_is_taken_when_earlier_ones_do_not_serve(with_uv: Checkout) -> None:
    with_uv.add_program("python3.13", "exit 127")
    with_uv.add_program("python3.11", "exit 4")
    assert with_uv.run("stratalog", "x").stdout == "stratalog x\n"


def test_the_second_start_sets_nothing_up(with_uv: Checkout) -> None:
    first, second = with_uv.run("stratalog", "dump", "a b"), with_uv.run("stratalog", "dump", "a b")
    assert first.stdout == second.stdout == "stratalog dump a b\n"
    assert "set-up 4/4" in first.stderr
    assert second.stderr == ""
    assert with_uv.syncs == 1


def test_a_second_start_needs_no_python_on_the_path(with_uv: Checkout) -> None:
    with_uv.run("stratalog")
    (with_uv.path / "python3").unlink()
    assert with_uv.run("stratalog", "--version").stdout == "stratalog --version\n"


def test_bytecode_is_kept_where_the_environment_says_not_to(with_uv: Checkout) -> None:
    with_uv.run("stratalog")
    shown = with_uv.root / ".venv" / "bin" / "stratalog"
    shown.write_text('#!/bin/sh\necho "${PYTHONDONTWRITEBYTECODE-kept}"\n', encoding="utf-8")
    assert with_uv.run("stratalog", PYTHONDONTWRITEBYTECODE="1").stdout == "kept\n"


@pytest.mark.parametrize("name", ["uv.lock", "pyproject.toml", "tools/set_up.py"])
def test_a_changed_lock_file_is_set_up_again(with_uv: Checkout, name: str) -> None:
    with_uv.run("stratalog")
    with (with_uv.root / name).open("a") as file:
        file.write("\n# changed\n")
    with_uv.run("stratalog")
    assert with_uv.syncs == 2


def test_a_directory_that_moved_is_set_up_again(with_uv: Checkout) -> None:
    with_uv.run("stratalog")
    with_uv.root = with_uv.root.rename(with_uv.root.with_name("moved"))
    assert with_uv.run("stratalog", "x").stdout == "stratalog x\n"
    assert with_uv.syncs == 2


def test_a_link_to_the_launcher_finds_its_repository(with_uv: Checkout, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "elsewhere" / "stratalog"
    link.symlink_to(Path("..") / with_uv.root.name / "stratalog")
    again = Checkout(link.parent, with_uv.path)
    assert again.run("stratalog", "x").stdout == "stratalog x\n"


def test_a_failed_step_is_named_with_its_code_and_the_end_of_its_output(with_uv: Checkout) -> None:
    done = with_uv.run("stratalog", FAKE_UV_FAILS="7")
    assert done.returncode == 2
    assert done.stdout == ""
    assert "set-up failed at 'installing packages" in done.stderr
    assert "uv exited with code 7" in done.stderr
    assert "    no space left on the device\n" in done.stderr
    assert with_uv.run("stratalog", "x").stdout == "stratalog x\n"


def test_pip_that_cannot_reach_anything_is_reported(checkout: Checkout) -> None:
    checkout.add_python()
    done = checkout.run("stratalog", PIP_NO_INDEX="1", PIP_FIND_LINKS=str(checkout.root), PIP_CONFIG_FILE=os.devnull)
    assert done.returncode == 2
    assert "set-up failed at 'getting uv by pip'" in done.stderr
    assert "No matching distribution found for uv==" in done.stderr


def test_two_at_once_set_up_once(with_uv: Checkout) -> None:
    both = [with_uv.start("stratalog", "x", FAKE_UV_WAITS="1") for _ in range(2)]
    outputs = [process.communicate(timeout=60) for process in both]
    assert [out for out, _ in outputs] == ["stratalog x\n"] * 2
    assert with_uv.syncs == 1


def test_a_killed_installation_begins_again(with_uv: Checkout) -> None:
    with_uv.run("stratalog")
    (with_uv.root / ".venv" / "left-over").touch()
    (with_uv.root / ".venv" / "set-up.stamp").unlink()
    process = with_uv.start("stratalog", FAKE_UV_WAITS="30")
    deadline = time.monotonic() + 60
    while with_uv.syncs < 2:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    for pid in children:
        os.kill(int(pid), signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode not in (0, None)
    assert with_uv.run("stratalog", "x").stdout == "stratalog x\n"
    assert not (with_uv.root / ".venv" / "left-over").exists()


def test_what_the_set_up_compiles_is_there() -> None:
    """The set-up of a fresh clone ends with this; here the loops come from the cache."""
    code = "import runpy; exec(runpy.run_path('tools/set_up.py')['COMPILE'])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
