"""Machines of a network on one machine: each node in a network namespace of its own, and cuts between two of them.

    with NetworkOfNodes([100, 1, 7]) as network:        # skips the test where namespaces cannot be made
        with network.inside():                          # this thread, and what it starts, is on the network too
            Popen([*network.prefix(7), "program"])
            with network.cut(7, 100): ...               # what 7 sends to 100 is lost, until the end of the block

Nothing of the machine's own network is touched: the bridge is in a namespace as well.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

import pytest

_NEW_NETWORK = 0x40000000
_LOOKUP_LOCAL = 32_000
_CUTS = 100


class NetworkOfNodes:
    """`nodes` have the addresses 10.77.0.N; who is `inside` has 10.77.0.254. Needs root."""

    def __init__(self, nodes: Iterable[int]) -> None:
        self._nodes = tuple(nodes)
        self._hub = f"net-{os.getpid()}-hub"
        self._made: list[str] = []

    def host(self, node: int) -> str:
        return f"10.77.0.{node}"

    def prefix(self, node: int) -> Sequence[str]:
        """Return what begins a command that is to run on a node."""
        return ("ip", "netns", "exec", self._name(node))

    def __enter__(self) -> NetworkOfNodes:
        if shutil.which("ip") is None:
            pytest.skip("no program ip to make network namespaces with")
        try:
            self._add(self._hub)
        except subprocess.CalledProcessError as error:
            pytest.skip(f"no network namespaces can be made here: {error.stderr.strip()}")
        try:
            self._in(self._hub, "link", "add", "bridge", "type", "bridge")
            self._in(self._hub, "addr", "add", "10.77.0.254/24", "dev", "bridge")
            self._in(self._hub, "link", "set", "bridge", "up")
            for node in self._nodes:
                self._attach(node)
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remove()

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Put the calling thread on the network, and every thread and process that it starts in the block."""
        home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        try:
            hub = os.open(f"/run/netns/{self._hub}", os.O_RDONLY)
            try:
                _set_namespace(hub)
            finally:
                os.close(hub)
            try:
                yield
            finally:
                _set_namespace(home)
        finally:
            os.close(home)

    @contextmanager
    def cut(self, *ways: tuple[int, int]) -> Iterator[None]:
        """Lose what goes from the first node to the second one, of each pair."""
        for sender, receiver in ways:
            self._rule("add", sender, receiver)
        try:
            yield
        finally:
            for sender, receiver in ways:
                self._rule("del", sender, receiver)

    def _rule(self, what: str, sender: int, receiver: int) -> None:
        rule = ("from", self.host(sender), "blackhole")
        self._in(self._name(receiver), "rule", what, "pref", str(_CUTS + sender), *rule)

    def _attach(self, node: int) -> None:
        name, port = self._name(node), f"to-{node}"
        self._add(name)
        self._in(self._hub, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", name)
        self._in(self._hub, "link", "set", port, "master", "bridge", "up")
        self._in(name, "addr", "add", f"{self.host(node)}/24", "dev", "eth0")
        self._in(name, "link", "set", "eth0", "up")
        # What is for this node is found in the table "local", which has to come behind the cuts.
        self._in(name, "rule", "add", "pref", str(_LOOKUP_LOCAL), "lookup", "local")
        self._in(name, "rule", "del", "pref", "0", "lookup", "local")

    def _name(self, node: int) -> str:
        return f"net-{os.getpid()}-{node}"

    def _add(self, name: str) -> None:
        _run("netns", "add", name)
        self._made.append(name)
        self._in(name, "link", "set", "lo", "up")

    def _in(self, name: str, *command: str) -> None:
        _run("-n", name, *command)

    def _remove(self) -> None:
        while self._made:
            name = self._made.pop()
            if Path(f"/run/netns/{name}").exists():
                _run("netns", "del", name)


def _run(*command: str) -> None:
    subprocess.run(["ip", *command], check=True, capture_output=True, text=True)


def _set_namespace(descriptor: int) -> None:
    if ctypes.CDLL(None, use_errno=True).setns(descriptor, _NEW_NETWORK):
        raise OSError(ctypes.get_errno(), "the network namespace cannot be entered")
