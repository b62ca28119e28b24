"""The hardened broker of docs/security.md, as it is written there: from an empty directory to a record of alice's."""

from __future__ import annotations

import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support.ports import free_port

PAGE = Path(__file__).parents[2] / "docs" / "security.md"
#: Types a line at each prompt, on a terminal of its own.
TYPIST = """
import os, pty, sys
pid, terminal = pty.fork()
if not pid:
    os.execvp("bash", ["bash", "-ec", sys.argv[1]])
seen, typed = b"", 0
while True:
    try:
        seen += os.read(terminal, 1024)
    except OSError:
        break
    while seen.count(b": ") > typed:
        typed += 1
        os.write(terminal, sys.argv[2].encode() + b"\\n")
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) or seen.count(sys.argv[2].encode()))
"""
SECTION = "## A hardened broker in ten commands\n"


class Example:
    """The blocks of the section, done in an empty home by a user who has nothing else."""

    def __init__(self, home: Path, port: int) -> None:
        self.home = home
        section = PAGE.read_text().partition(SECTION)[2].partition("\n## ")[0].replace("9093", str(port))
        self.prose = " ".join(section.split())
        found = re.findall(r"(?:^    .*\n|^\n(?=    ))+", section, re.MULTILINE)
        self.blocks = [re.sub(r"^    ", "", each, flags=re.MULTILINE).strip() + "\n" for each in found]
        programs = Path(sys.executable).parent
        self.env = {"HOME": str(home), "PATH": f"{programs}:/usr/bin:/bin", "LANG": "C.UTF-8"}

    def commands(self, block: int) -> list[str]:
        text = self.blocks[block].replace("\\\n", " ")
        return [line.removeprefix("$ ") for line in text.splitlines() if line.startswith("$ ")]

    def sh(self, command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-ec", f"umask 077; {command}"],
            cwd=self.home, env=self.env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
            timeout=120,
        )  # fmt: skip

    def good(self, command: str) -> str:
        done = self.sh(command)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def type(self, command: str, password: str) -> None:
        """Give a password to a command that asks for it, and see that it is not shown."""
        (self.home / "typist.py").write_text(TYPIST)
        self.good(f"python typist.py {shlex.quote(command)} {password}")

    @contextmanager
    def serving(self, command: str) -> Iterator[None]:
        with (
            (self.home / "log").open("w") as log,
            subprocess.Popen(
                ["bash", "-ec", f"umask 077; exec {command}"],
                cwd=self.home, env=self.env, stdout=subprocess.PIPE, stderr=log, text=True,
            ) as process,
        ):  # fmt: skip
            assert process.stdout is not None
            try:
                assert process.stdout.readline().startswith("ready "), (self.home / "log").read_text()
                yield
            finally:
                process.send_signal(signal.SIGTERM)
                process.communicate(timeout=60)


@pytest.mark.soak
def test_ten_commands_lead_to_a_broker_that_lets_in_who_it_should(tmp_path: Path) -> None:
    if shutil.which("openssl", path="/usr/bin:/bin") is None:
        pytest.skip("no program openssl to make certificates with")
    example = Example(tmp_path, free_port())
    server, admin, _, serve, rules, client = range(6)
    (tmp_path / "server.properties").write_text(example.blocks[server])
    (tmp_path / "admin.properties").write_text(example.blocks[admin])
    of_alice = example.blocks[admin].replace('"admin"', '"alice"').replace("admin-secret", "alice-secret")
    (tmp_path / "alice.properties").write_text(of_alice)
    install, *certificates = example.commands(2)
    assert "pip install" in install
    for command in certificates:
        example.good(command)
    format_, start = example.commands(serve)
    example.good(format_)
    with example.serving(start):
        add_user, allow = example.commands(rules)
        example.type(add_user, "alice-secret")
        example.good(allow)
        program = tmp_path / "client.py"
        program.write_text(example.blocks[client])
        example.good("python client.py")
        consume = re.search(r"`(stratalog consume [^`]*)`", example.prose)
        assert consume is not None
        assert example.good(consume[1]) == "one\n"
        refused = example.sh(f"stratalog topics create other {consume[1][consume[1].index('-b ') :]}")
        assert refused.returncode != 0
        assert "TOPIC_AUTHORIZATION_FAILED" in refused.stderr
        assert "alice" in (tmp_path / "log").read_text()
        wrong = example.sh(
            "sed s/alice-secret/guessed/ alice.properties > wrong.properties; "
            + consume[1].replace("alice.properties", "wrong.properties")
        )
        assert wrong.returncode != 0
        assert "one" not in wrong.stdout
    assert len(example.commands(2)) + len(example.commands(serve)) + len(example.commands(rules)) == 10
    secret = [*(tmp_path / "data").rglob("*"), *tmp_path.glob("*.key"), tmp_path / "broker.pem"]
    assert [str(path) for path in secret if path.stat().st_mode & 0o077] == []
