"""
Write ``llms.txt``: each page of the docs in one line, for programs that read them.

The pages, and their order, are those of the tables of contents in ``index.md``. The
description of a page is its first sentence. Links lead to the Markdown of a page, which
Sphinx copies to ``_sources``. A page of the API has its text from docstrings, so its
names describe it, and the link leads to its HTML. The form is that of
https://llmstxt.org.
"""

from __future__ import annotations

import re
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sphinx.application import Sphinx

TREE = re.compile(r"^```\{toctree\}\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
CAPTION = re.compile(r"^:caption: (.+)$", re.MULTILINE)
NOT_PROSE = re.compile(r"^(```|:::).*?^\1$", re.MULTILINE | re.DOTALL)
SENTENCE = re.compile(r"^[\w`\[].*", re.MULTILINE)
ROLE = re.compile(r"\{\w+\}`([^<`]+?)(?: <[^>]+>)?`")
ENTRY = re.compile(r"^\.\. (auto\w+|py:\w+):: ([\w.]+)", re.MULTILINE)
LINK = re.compile(r"\[([^]]+)\]\([^)]+\)")


def setup(app: Sphinx) -> None:
    app.connect("build-finished", write)


def write(app: Sphinx, exception: Exception | None) -> None:
    if exception is None and app.builder.format == "html":
        text = llms_text(Path(app.srcdir))
        Path(app.outdir, "llms.txt").write_text(text, "utf-8")


def llms_text(folder: Path) -> str:
    """Return one line for each page of the docs in *folder*, in sections."""
    index = folder / "index.md"
    lines = [f"# {title_of(index)}", "", f"> {description_of(index)}"]
    for title, pages in sections_of(index):
        lines += ["", f"## {title}", "", *[line_of(page, folder) for page in pages]]
    return "\n".join(lines) + "\n"


def sections_of(page: Path) -> Iterator[tuple[str, list[Path]]]:
    """Yield the tables of contents of *page*, and those of the pages in them."""
    for tree in TREE.finditer(page.read_text("utf-8")):
        caption = CAPTION.search(tree["body"])
        pages = pages_of(page.parent, tree["body"])
        yield caption[1] if caption else title_of(page), pages
        for listed in pages:
            yield from sections_of(listed)


def pages_of(folder: Path, tree: str) -> list[Path]:
    """Return the pages of a table of contents, each once, as Sphinx does."""
    entries = [line for line in tree.splitlines() if line and not line.startswith(":")]
    found = [sorted(folder.glob(f"{entry}.md")) for entry in entries]
    return list(dict.fromkeys(chain.from_iterable(found)))


def line_of(page: Path, folder: Path) -> str:
    path = page.relative_to(folder)
    if shown := ", ".join(f"`{name}`" for name in names_in(page)):
        return f"- [{title_of(page)}]({path.with_suffix('.html').as_posix()}): {shown}"
    source = f"_sources/{path.as_posix()}.txt"
    return f"- [{title_of(page)}]({source}): {description_of(page)}"


def names_in(page: Path) -> Iterator[str]:
    """Yield the names that have an entry of the API on *page*."""
    module = ""
    for kind, name in ENTRY.findall(page.read_text("utf-8")):
        if kind in ("py:module", "py:currentmodule"):
            module = name
        if kind.startswith("auto") or kind == "py:module":
            yield name
        elif kind != "py:currentmodule":
            yield f"{module}.{name}"


def title_of(page: Path) -> str:
    first = page.read_text("utf-8").partition("\n")[0]
    return without_markup(first.removeprefix("# "))


def description_of(page: Path) -> str:
    """Return the first sentence of *page*, which is a line of its own."""
    prose = NOT_PROSE.sub("", page.read_text("utf-8").partition("\n")[2])
    return without_markup(SENTENCE.search(prose)[0])


def without_markup(text: str) -> str:
    return LINK.sub(r"\1", ROLE.sub(r"\1", text))
