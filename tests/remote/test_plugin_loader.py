from __future__ import annotations

import os
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from stratalog.errors import UsageError
from stratalog.remote.api.interfaces import RemoteStorageManager
from stratalog.remote.api.plugin_loader import configure_plugin, load_plugin

KEY = "remote.log.storage.manager.class.name"

PLUGIN = """
from __future__ import annotations
from dataclasses import dataclass
import json
import helper_lib
import package_lib.part
from package_lib import part as same
from stratalog.errors import RemoteStorageError

@dataclass
class Options:
    version: int

class Manager:
    options = Options(helper_lib.VERSION)
    part = package_lib.part.NAME + same.NAME
    error = RemoteStorageError
    def configure(self, configs): self.configs = configs
    def copy_log_segment_data(self, metadata, data): return None
    def fetch_log_segment(self, metadata, start_position, end_position=None):
        import helper_late
        return helper_late.DATA
    def fetch_index(self, metadata, index_type): return json.dumps({}).encode()
    def delete_log_segment_data(self, metadata): return None
    def close(self): return None

class Half:
    def configure(self, configs): raise RuntimeError("no such bucket")

class Unmade:
    def __init__(self): raise OSError("out of luck")
"""


def _files(version: int) -> dict[str, str]:
    return {
        "my_plugin.py": PLUGIN,
        "helper_lib.py": f"VERSION = {version}\n",
        "helper_late.py": f"DATA = b'late {version}'\n",
        "package_lib/__init__.py": "from . import part\n",
        "package_lib/part.py": f"NAME = 'part{version}'\n",
    }


def _directory(path: Path, version: int) -> Path:
    for name, text in _files(version).items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(text)
    return path


def _wheel(path: Path, version: int) -> Path:
    wheel = path / f"my_plugin-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in _files(version).items():
            archive.writestr(name, text)
    return wheel


def _load(name: str, class_path: str | None) -> Any:
    return load_plugin("storage", RemoteStorageManager, KEY, name, class_path)


@pytest.mark.parametrize("make", [_directory, _wheel])
def test_plugins_with_other_versions_of_one_library_live_side_by_side(tmp_path: Path, make: Any) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    one = _load("my_plugin:Manager", str(make(tmp_path / "one", 1)))
    two = _load("my_plugin:Manager", str(make(tmp_path / "two", 2)))
    assert (one.options.version, two.options.version) == (1, 2)
    assert (one.part, two.part) == ("part1part1", "part2part2")
    assert (one.fetch_log_segment(None, 0), two.fetch_log_segment(None, 0)) == (b"late 1", b"late 2")
    assert not {"my_plugin", "helper_lib", "helper_late", "package_lib"} & set(sys.modules)


def test_a_plugins_errors_are_the_brokers_and_its_path_may_have_several_parts(tmp_path: Path) -> None:
    from stratalog.errors import RemoteStorageError

    _directory(tmp_path / "plugin", 1)
    (tmp_path / "plugin" / "helper_lib.py").unlink()
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "helper_lib.py").write_text("VERSION = 9\n")
    (tmp_path / "lib" / "stratalog").mkdir()
    (tmp_path / "lib" / "stratalog" / "__init__.py").write_text("raise SystemExit\n")
    made = _load("my_plugin:Manager", os.pathsep.join([str(tmp_path / "plugin"), str(tmp_path / "lib")]))
    assert made.options.version == 9
    assert made.error is RemoteStorageError


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("my_plugin", "expected module:Class"),
        ("my_plugin:", "expected module:Class"),
        ("nowhere:Manager", "the storage plugin cannot be loaded: No module named 'nowhere'"),
        ("my_plugin:Nothing", "has no attribute 'Nothing'"),
        ("my_plugin:Unmade", "the storage plugin cannot be loaded: OSError: out of luck"),
        ("my_plugin:Half", "the storage plugin lacks close, copy_log_segment_data, delete_log_segment_data, fetch"),
    ],
)
def test_a_plugin_that_cannot_be_used_is_named_with_its_path_and_the_reason(
    tmp_path: Path, name: str, said: str
) -> None:
    path = str(_directory(tmp_path / "p", 1))
    with pytest.raises(UsageError) as caught:
        _load(name, path)
    assert str(caught.value).startswith(f"{KEY}={name} (class path {path}): ")
    assert said in str(caught.value)


def test_a_class_path_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"gone\.whl does not exist"):
        _load("my_plugin:Manager", str(tmp_path / "gone.whl"))


def test_a_configuration_that_a_plugin_refuses_is_reported_with_the_reason() -> None:
    def configure(configs: Any) -> None:
        raise RuntimeError(f"no bucket {configs['bucket']}")

    with pytest.raises(UsageError, match=f"{KEY}=m:C: the storage plugin refuses .*: RuntimeError: no bucket b"):
        configure_plugin("storage", KEY, "m:C", configure, {"bucket": "b"})
