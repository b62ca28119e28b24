"""The plugin on docs/how-to/storage_plugins.md keeps the contract."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from stratalog.remote.api.interfaces import RemoteStorageManager
from stratalog.testing.remote_storage_contract import RemoteStorageManagerContract

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "storage_plugins.md"
_NAMES: dict[str, Any] = {"__name__": "plugins_page"}
for _block in re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL):
    exec(compile(_block, str(PAGE), "exec"), _NAMES)


class TestThePluginOfThePage(RemoteStorageManagerContract):
    def make_plugin(self, tmp_path: Path) -> RemoteStorageManager:
        plugin: RemoteStorageManager = _NAMES["TestDirectoryStorage"]().make_plugin(tmp_path)
        return plugin
