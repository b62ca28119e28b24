"""What an index says of the package: a summary, a page that stands alone, licence, versions of Python, extras."""

from __future__ import annotations

import tomllib
from importlib.metadata import metadata
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_metadata_is_whole() -> None:
    reported = metadata("stratalog")
    assert reported["Summary"] == PROJECT["description"]
    assert reported["License-Expression"] == "Apache-2.0"
    assert reported.get_all("License-File") == ["LICENSE"]
    assert reported["Requires-Python"] == PROJECT["requires-python"]
    assert sorted(reported["Keywords"].split(",")) == sorted(PROJECT["keywords"])
    assert set(reported.get_all("Provides-Extra") or ()) == set(PROJECT["optional-dependencies"])
    named = set(reported.get_all("Classifier") or ())
    assert {"Framework :: Pytest", "Operating System :: POSIX :: Linux", "Typing :: Typed"} <= named
    assert any(each.startswith("Programming Language :: Python :: 3.") for each in named)


def test_the_page_of_the_index_is_in_it() -> None:
    reported = metadata("stratalog")
    assert reported["Description-Content-Type"] == "text/markdown"
    assert PROJECT["readme"] == "docs/package.md"
    assert reported["Description"].lstrip().startswith("# stratalog")
