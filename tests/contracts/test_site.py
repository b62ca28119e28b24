"""The documentation as a site: it builds without a warning, holds every page, and loads nothing from other hosts."""

from __future__ import annotations

import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
_HIDDEN = {DOCS / "package.md"}  # the page of the package index


def test_every_page_of_the_documentation_is_in_the_navigation() -> None:
    class Loader(yaml.SafeLoader):  # type: ignore[misc]
        """mkdocs' own tags are of no interest here."""

    Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)
    settings = yaml.load((ROOT / "mkdocs.yml").read_text(), Loader)
    listed = re.findall(r"[\w/-]+\.md", str(settings["nav"]))
    assert len(listed) == len(set(listed))
    pages = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md") if page not in _HIDDEN}
    assert {page for page in listed if not page.startswith("project/")} == pages


def test_what_belongs_to_an_item_of_a_list_is_indented_as_mkdocs_asks() -> None:
    page = "- one\n  more\n\n      code\n\n  end\n- two\n2. two\n\n   | a |\n\nA\n  b\n```\n- x\n  y\n```\n"
    indent_list_items = runpy.run_path(str(ROOT / "tools" / "site_pages.py"))["indent_list_items"]
    assert indent_list_items(page) == (
        "- one\n    more\n\n        code\n\n    end\n\n- two\n2. two\n\n    | a |\n\nA\n  b\n```\n- x\n  y\n```\n"
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as the documented command builds it, into a directory of the test."""
    target = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(target)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert (built.returncode, built.stderr) == (0, ""), built.stdout
    return target


@pytest.mark.soak
def test_every_page_of_the_documentation_is_a_page_of_the_site(site: Path) -> None:
    pages = {page.relative_to(DOCS).with_suffix("") for page in DOCS.rglob("*.md") if page not in _HIDDEN}
    built = {page.parent.relative_to(site) for page in site.rglob("index.html")}
    assert {page for page in pages if page.name != "index"} - built == set()
    assert {Path("project") / name for name in ("CHANGELOG", "CONTRIBUTING", "SECURITY", "deploy")} <= built


@pytest.mark.soak
def test_every_link_of_the_site_leads_to_a_page_of_it(site: Path) -> None:
    missing = set()
    for page in site.rglob("*.html"):
        for target in re.findall(r'(?:href|src)="([^"#]*)(?:#[^"]*)?"', page.read_text()):
            if target and not re.match(r"[a-z]+:", target) and page.name != "404.html":
                found = Path(os.path.normpath(page.parent / target))
                if not (found.is_file() or (found / "index.html").is_file()):
                    missing.add((str(page.relative_to(site)), target))
    assert missing == set()


@pytest.mark.soak
def test_no_page_loads_anything_from_another_host(site: Path) -> None:
    kinds = (r"<(?:script|img|iframe)[^>]* src", r"<link[^>]* rel=\"?(?:stylesheet|preconnect)\"?[^>]* href")
    loaded = {
        address
        for page in site.rglob("*.html")
        for kind in kinds
        for address in re.findall(kind + r"=\"?(https?:[^\" >]+)", page.read_text())
    }
    assert loaded == set()


@pytest.mark.soak
def test_the_search_finds_a_key_a_command_and_a_metric(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text())
    texts = [entry["text"] for entry in index["docs"]]
    for word in ("local.retention.bytes", "tier restore", "kafka_server_brokertopicmetrics"):
        assert any(word in text for text in texts), word
