"""A container file carried out without a container engine: each stage in a root of its own, its commands as written.

The base image is what a stage begins with: the libraries and tools of this machine, read-only, and its Python. It takes
root and Linux; `why_not` says what is missing.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

_IMAGE = ("/usr", "/lib", "/lib64", "/bin", "/sbin")
_ETC = ("passwd", "group", "shadow", "gshadow", "login.defs", "hosts", "resolv.conf", "ld.so.cache", "nsswitch.conf")
_DEVICES = ("null", "zero", "random", "urandom")
#: Of the network, for what is fetched.
_KEPT = ("PIP_CERT", "PIP_INDEX_URL", "PIP_DEFAULT_TIMEOUT", "SSL_CERT_FILE", "https_proxy", "http_proxy")


def why_not() -> str | None:
    """Return why no root can be made here."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "it takes root, on Linux"
    for name in ("unshare", "nsenter", "setpriv", "mount", "ip"):
        if shutil.which(name) is None:
            return f"there is no {name} on this machine"
    tried = subprocess.run(["unshare", "--mount", "--net", "--pid", "--fork", "true"], capture_output=True, check=False)
    return None if tried.returncode == 0 else "namespaces cannot be made here"


@dataclass
class Stage:
    """What a stage of the file has come to."""

    root: Path
    env: dict[str, str] = field(default_factory=dict)
    directory: str = "/"
    user: str = "0:0"
    said: dict[str, str] = field(default_factory=dict)

    def command(self, *names: str) -> list[str]:
        """Return the words of instructions in the form of JSON, one after the other."""
        return [word for name in names for word in json.loads(self.said[name])]

    @property
    def environment(self) -> dict[str, str]:
        base = {"PATH": f"{sys.base_prefix}/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME": "/"}
        own = {name: value.replace("$PATH", base["PATH"]) for name, value in self.env.items()}
        return {**base, **own}


def carry_out(file: Path, context: Path, below: Path) -> Stage:
    """Carry out a container file, and return its last stage. Its root is below `below`, which is to be deleted."""
    stages: dict[str, Stage] = {}
    stage: Stage | None = None
    for name, text in _instructions(file.read_text()):
        if name == "FROM":
            stage = Stage(below / f"stage{len(stages)}")
            stages[text.partition(" AS ")[2] or str(len(stages))] = stage
            _begin(stage.root)
            continue
        assert stage is not None
        if name == "RUN":
            _run_in(stage, text)
        elif name == "WORKDIR":
            stage.directory = text
            (stage.root / text.lstrip("/")).mkdir(parents=True, exist_ok=True)
        elif name == "COPY":
            _copy(stage, text, context, stages)
        elif name == "ENV":
            stage.env |= dict(word.split("=", 1) for word in shlex.split(text))
        elif name == "USER":
            stage.user = text
        else:
            stage.said[name] = text
    assert stage is not None
    return stage


def _instructions(text: str) -> Iterator[tuple[str, str]]:
    for line in text.replace("\\\n", " ").splitlines():
        if line.strip() and not line.startswith("#"):
            name, _, rest = line.partition(" ")
            yield name, " ".join(rest.split()) if name != "HEALTHCHECK" else rest


def _begin(root: Path) -> None:
    for name in (*_IMAGE, "/etc", "/tmp", "/proc", "/dev/shm", sys.base_prefix):
        (root / name.lstrip("/")).mkdir(parents=True, exist_ok=True)
    for name in _DEVICES:
        (root / "dev" / name).touch()
    for name in _ETC:
        if Path("/etc", name).exists():
            shutil.copy(Path("/etc", name), root / "etc" / name)
    if Path("/etc/ssl").exists():
        shutil.copytree("/etc/ssl", root / "etc" / "ssl", symlinks=False, ignore_dangling_symlinks=True)
    (root / "tmp").chmod(0o1777)


def _copy(stage: Stage, text: str, context: Path, stages: dict[str, Stage]) -> None:
    source = re.match(r"--from=(\S+) ", text)
    base = context if source is None else stages[source[1]].root
    *names, target = text[source.end() if source else 0 :].split()
    into = stage.root / Path(stage.directory, target).as_posix().lstrip("/")
    for name in names:
        there = base / name.lstrip("/")
        if there.is_dir():
            shutil.copytree(there, into, dirs_exist_ok=True, symlinks=True)
        else:
            place = into / there.name if target.endswith("/") else into
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(there, place)


def _run_in(stage: Stage, text: str) -> None:
    env = {**{name: os.environ[name] for name in _KEPT if name in os.environ}, **stage.environment}
    done = subprocess.run(
        ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-ec", script(stage, ["sh", "-c", text])],
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{text}: {done.stdout[-2000:]}{done.stderr[-2000:]}"


def script(stage: Stage, command: list[str], *, is_read_only: bool = False, volumes: tuple[str, ...] = ()) -> str:
    """Return a shell script that enters the root within namespaces of its own, and becomes `command`."""
    root = shlex.quote(str(stage.root))
    lines = [f"mount --bind {root} {root}"]
    for name in (*_IMAGE, sys.base_prefix):
        lines.append(f"mount --bind {name} {root}{name} && mount -o remount,bind,ro {root}{name}")
    lines += [f"mount --bind /dev/{name} {root}/dev/{name}" for name in _DEVICES]
    lines += [f"mount -t tmpfs tmpfs {root}{name}" for name in ("/tmp", "/dev/shm")]
    lines += [f"mount -t proc proc {root}/proc"]
    lines += [f"mount --bind {root}{name} {root}{name}" for name in volumes]
    if is_read_only:
        lines += ["ip link set lo up", f"mount -o remount,bind,ro {root}"]
    inside = f"cd {shlex.quote(stage.directory)} && exec {shlex.join(command)}"
    change = f"chroot --userspec={stage.user} --groups={stage.user.partition(':')[2]} {root}"
    lines += [f"exec setpriv --no-new-privs {change} /bin/sh -c {shlex.quote(inside)}"]
    return "\n".join(lines)
