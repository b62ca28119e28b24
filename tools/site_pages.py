"""Complete the documentation site: pages that stand outside of `docs/`, and links that lead out of it.

mkdocs calls the functions (`hooks` in `mkdocs.yml`). The changelog, CONTRIBUTING, SECURITY and the files of `deploy/`
become pages below `project/`. A link to any other file of the repository becomes its text.
"""

from __future__ import annotations

import os.path
import re
from pathlib import Path, PurePosixPath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
PROJECT_PAGES = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\((?![a-z]+:)([^)#\s]+)(#[^)]*)?\)")
_LANGUAGES = {".yaml": "yaml", ".json": "json", ".service": "ini"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for name in PROJECT_PAGES:
        files.append(File.generated(config, f"project/{name}", content=(ROOT / name).read_text()))
    files.append(File.generated(config, "project/deploy.md", content=deploy_page()))
    return files


def deploy_page() -> str:
    """Return the files of `deploy/` as one page."""
    parts = ["# Files for servers", "See [Run a broker on a server](../how-to/run_on_a_server.md)."]
    for path in sorted((ROOT / "deploy").iterdir()):
        if path.is_file():
            language = "dockerfile" if path.name == "Containerfile" else _LANGUAGES.get(path.suffix, "text")
            parts += [f"## {path.name}", f"```{language}\n{path.read_text().rstrip()}\n```"]
    return "\n\n".join(parts) + "\n"


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Point links at the pages of the site."""
    source = PurePosixPath(page.file.src_uri)
    if source.name == "index.md":
        page.meta["hide"] = ["navigation"]  # the page is a list of all pages
    # Where the page stands in the repository, so that its links are read as its author wrote them.
    folder = "." if source.name in PROJECT_PAGES else f"docs/{source.parent}"

    def link(found: re.Match[str]) -> str:
        text, target, anchor = found[1], found[2], found[3] or ""
        path = os.path.normpath(f"{folder}/{target}")
        if path in PROJECT_PAGES:
            path = f"docs/project/{path}"
        elif path == "deploy" or path.startswith("deploy/"):
            path, anchor = "docs/project/deploy.md", ""
        if not path.startswith("docs/") or (ROOT / path).is_dir():  # the navigation lists folders
            return text
        return f"[{text}]({os.path.relpath(path.removeprefix('docs/'), str(source.parent))}{anchor})"

    return indent_list_items(_LINK.sub(link, markdown))


def indent_list_items(markdown: str) -> str:
    """Indent what belongs to an item of a list by four columns, which mkdocs asks for, and GitHub does not."""
    lines, width, fenced, paragraphs = list[str](), 0, False, False
    for line in markdown.split("\n"):
        fenced ^= line.startswith("```")
        item = re.match(r"(?:- |\d+\. )", line)
        if item and not fenced:
            if paragraphs and lines[-1]:
                lines.append("")
            width, paragraphs = len(item[0]), False
        elif line and (fenced or not line.startswith(" " * width)):
            width, paragraphs = 0, False
        elif line and width:
            paragraphs |= not lines[-1]
            line = "    " + line[width:]
        lines.append(line)
    return "\n".join(lines)
