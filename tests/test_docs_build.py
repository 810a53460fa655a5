"""
What readers find in the docs after a build: names, types, sources, copy buttons.

It takes a minute, and needs Sphinx, which is in the dependency group ``docs``.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

import pytest
from test_docs import public_names

pytest.importorskip("sphinx", reason="Sphinx is not installed: --group docs")
bs4 = pytest.importorskip("bs4", reason="furo is not installed: --group docs")

ROOT = Path(__file__).parents[1]
RETURNING = {"function", "method", "classmethod", "staticmethod"}
VALUES = {"attribute", "property", "data"}
UNTYPED = re.compile(r"\w+(=.*)?")


class Entry(NamedTuple):
    """One entry of the API reference."""

    name: str
    kind: str
    head: bs4.Tag
    text: str

    @property
    def is_decorator(self):
        return self.head.get_text().strip().startswith("@")


@pytest.fixture(scope="module")
def html(tmp_path_factory):
    """The folder of the docs, built without a warning."""
    folder = tmp_path_factory.mktemp("html")
    command = [
        "sphinx",
        "-q",
        "-W",
        "--keep-going",
        "-b",
        "html",
        ROOT / "docs",
        folder,
    ]
    built = subprocess.run(  # noqa: S603 -- our own docs
        [sys.executable, "-m", *command], capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stderr
    return folder


@pytest.fixture(scope="module")
def entries(html):
    pages = sorted((html / "reference" / "api").glob("*.html"))
    return [entry for page in pages for entry in entries_of(page.read_text("utf-8"))]


def entries_of(text):
    """Yield the entries of a page, those of members included."""
    for description in bs4.BeautifulSoup(text, "html.parser").select("dl.py"):
        kind = next(name for name in description["class"] if name != "py")
        body = description.find("dd", recursive=False)
        parts = [part for part in body.children if part.name != "dl"] if body else []
        words = "".join(part.get_text() for part in parts).strip()
        for head in description.find_all("dt", recursive=False):
            if head.get("id"):
                yield Entry(head["id"], kind, head, words)


def untyped_parts(entry):
    """The parameters of an entry without a type, and what else has none."""
    names = [part.get_text() for part in entry.head.select(".sig-param")]
    parts = [name for name in names if UNTYPED.fullmatch(name)]
    if entry.kind in RETURNING and not entry.is_decorator:
        parts += [] if entry.head.select_one(".sig-return") else ["return"]
    if entry.kind in VALUES:
        shown = "".join(part.get_text() for part in entry.head.select(".property"))
        parts += [] if re.search("[:=]", shown) else ["value"]
    return parts


def test_other_projects_can_link_to_every_public_name(html):
    from sphinx.util.inventory import InventoryFile

    inventory = InventoryFile.loads((html / "objects.inv").read_bytes(), uri="")
    known = {name for kind in inventory.data for name in inventory.data[kind]}

    assert sorted(public_names() - known) == []


def test_every_public_name_leads_to_its_source(entries):
    public = [entry for entry in entries if entry.name in public_names()]
    missing = [e.name for e in public if not e.head.select_one(".viewcode-link")]

    assert len(public) > 150
    assert missing == []


def test_every_entry_shows_types(entries):
    missing = {
        entry.name: parts for entry in entries if (parts := untyped_parts(entry))
    }

    assert missing == {}


def test_no_entry_is_empty(entries):
    empty = [entry.name for entry in entries if not entry.text]
    meaningless = [e.name for e in entries if e.text.startswith("Alias for field")]

    assert empty == []
    assert meaningless == []


def test_every_option_shows_its_type(entries):
    named = [entry for entry in entries if "Unpack[" in entry.head.get_text()]
    untyped = {
        entry.name: names for entry in named if (names := options_without_types(entry))
    }

    assert len(named) > 20
    assert untyped == {}


def options_without_types(entry):
    """The options that the lists of an entry name, without a type there or above."""
    lists = entry.head.parent.select(":scope > dd > dl.field-list")
    text = "".join(part.get_text() for part in lists)
    names = re.findall(r"^(\w+) \N{EN DASH}", text, re.MULTILINE)
    heads = entry.head.parent.find_all("dt", recursive=False)
    signature = "".join(head.get_text() for head in heads)
    return [name for name in names if not re.search(rf"\b{name}:", signature)]


def test_signatures_are_written_as_in_python(entries):
    written = [" ".join(entry.head.get_text().split()) for entry in entries]

    assert [line for line in written if "~" in line] == []
    assert [line for line in written if "= <" in line] == []


def test_an_entry_without_types_or_text_is_noticed():
    text = """
    <dl class="py function">
    <dt id="cmdx.pay">
    <em class="sig-param">amount</em> <em class="sig-param">currency: str</em>
    </dt>
    <dd></dd>
    </dl>
    """
    (entry,) = entries_of(text)

    assert untyped_parts(entry) == ["amount", "return"]
    assert entry.text == ""


def test_what_is_printed_has_no_copy_button_and_prompts_are_left_out(html):
    script = (html / "_static" / "copybutton.js").read_text("utf-8")

    assert "div:not(.highlight-text) > div.highlight > pre" in script
    assert r"formatCopyText(text, '>>> |\\.\\.\\. |\\$ ', true, true, true" in script


def test_every_link_inside_the_docs_leads_somewhere(html):
    pages = [page for page in html.rglob("*.html") if "_static" not in page.parts]
    soups = {
        page: bs4.BeautifulSoup(page.read_text("utf-8"), "html.parser")
        for page in pages
    }
    anchors = {
        page: {tag["id"] for tag in soup.select("[id]")} for page, soup in soups.items()
    }

    links = [
        (page, tag["href"]) for page in pages for tag in soups[page].select("[href]")
    ]
    inside = [(page, link) for page, link in links if not urlsplit(link).scheme]
    broken = [
        (str(page.relative_to(html)), link)
        for page, link in inside
        if not leads_somewhere(page, link, anchors)
    ]

    assert len(inside) > 10_000
    assert broken == []


def leads_somewhere(page, link, anchors):
    """Whether *link* of *page* leads to a file, and to an anchor that is there."""
    parts = urlsplit(link)
    target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
    # A page of source code links back to one page only, also from names of others.
    known = None if "_modules" in page.parts else anchors.get(target)
    fragment = unquote(parts.fragment)
    return target.is_file() and (not fragment or known is None or fragment in known)


def test_the_build_writes_llms_txt_with_links_that_lead_somewhere(html):
    text = (html / "llms.txt").read_text("utf-8")
    links = re.findall(r"\]\((.+?)\)", text)

    assert len(links) > 80
    assert [link for link in links if not (html / link).is_file()] == []
