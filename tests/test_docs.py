"""
Every python block of the README and the docs runs, and shows what it really prints.

- The blocks of one page share a namespace, in order, on a clock that does not sleep.
- ``expression  # -> repr`` is compared with the repr of the expression, or with what
  it printed when it has no value.
- What a ``python`` block prints is compared with the ``text`` block right after it.
- A ``pycon`` block is a doctest; in a ``console`` block ``$ python -m cmdx`` is run.
- ``…`` in an expectation stands for anything, and times in ms may differ a little.
"""

from __future__ import annotations

import ast
import doctest
import io
import re
import subprocess
import sys
from contextlib import redirect_stdout
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import NamedTuple
from weakref import ref

import pytest
import structlog

from cmdx import clock, retriers, telemetry
from cmdx.cli import main

ROOT = Path(__file__).parents[1]
DOCS = sorted((ROOT / "docs").rglob("*.md"))
PAGES = [ROOT / "README.md", *(page for page in DOCS if "_build" not in page.parts)]
SIGNALS = [
    telemetry.task_started,
    telemetry.task_deprecated,
    telemetry.task_retried,
    telemetry.task_rolled_back,
    telemetry.task_executed,
]

FENCE = re.compile(r"^```([^\s`]*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ARROW = "# -> "
LOOSE = re.compile(r"(…|\d+\.\d ms)")
CLOSE_ENOUGH = 5.0

every_page = pytest.mark.parametrize(
    "page", PAGES, ids=lambda page: str(page.relative_to(ROOT))
)


class Block(NamedTuple):
    kind: str
    code: str
    line: int
    shown: str
    """What the text block right after it shows."""


class VirtualClock(clock.Clock):
    """Time passes only while somebody sleeps, and chance stays in the middle."""

    seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds

    async def asleep(self, seconds: float) -> None:
        self.seconds += seconds

    def random(self) -> float:
        return 0.5


def blocks_of(text: str) -> list[Block]:
    fences = list(FENCE.finditer(text))
    blocks = []
    for fence, following in pairwise([*fences, None]):
        kind, code = fence.groups()
        adjacent = following and not text[fence.end() : following.start()].strip()
        shown = following[2] if adjacent and following[1] == "text" else ""
        line = text.count("\n", 0, fence.start(2))
        blocks.append(Block(kind, code, line, shown))
    return blocks


def same(shown: str, real: str) -> bool:
    pieces = LOOSE.split(shown.rstrip())
    pattern = "".join(
        r".*?" if piece == "…" else r"(\d+\.\d) ms" if loose else re.escape(piece)
        for number, piece in enumerate(pieces)
        for loose in [number % 2 == 1]
    )
    match = re.fullmatch(pattern, real.rstrip(), re.DOTALL)
    if match is None:
        return False
    times = [float(piece[:-3]) for piece in pieces[1::2] if piece != "…"]
    return all(
        abs(time - float(found)) <= CLOSE_ENOUGH
        for time, found in zip(times, match.groups(), strict=True)
    )


def check_same(page: Path, line: int, shown: str, real: str) -> None:
    assert same(shown, real), (
        f"{page.relative_to(ROOT)}:{line} shows\n{shown}\nbut really it is\n{real}"
    )


def run_python(page: Path, block: Block, namespace: dict[str, object]) -> None:
    source = "\n" * block.line + block.code
    lines = source.splitlines()
    arrows = 0
    printed = io.StringIO()
    for node in ast.parse(source, str(page)).body:
        _, arrow, shown = lines[node.end_lineno - 1][node.end_col_offset :].partition(
            ARROW
        )
        with redirect_stdout(io.StringIO() if arrow else printed) as out:
            value = run_statement(page, node, namespace)
        if arrow:
            arrows += 1
            real = out.getvalue() if value is None and out.getvalue() else repr(value)
            check_same(page, node.end_lineno, shown, real)
    assert arrows == block.code.count(ARROW), (
        f"{page.name}:{block.line}: an arrow stands beside an expression of its own"
    )
    check_same(page, block.line, block.shown, printed.getvalue())


def run_statement(page: Path, node: ast.stmt, namespace: dict[str, object]) -> object:
    if isinstance(node, ast.Expr):
        code = compile(ast.Expression(node.value), page, "eval", dont_inherit=True)
        return eval(code, namespace)  # noqa: S307
    code = compile(ast.Module([node], []), page, "exec", dont_inherit=True)
    exec(code, namespace)  # noqa: S102
    return None


def run_pycon(page: Path, block: Block, namespace: dict[str, object]) -> None:
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    test = doctest.DocTestParser().get_doctest(
        block.code, namespace, page.name, str(page), block.line
    )
    report: list[str] = []
    doctest.DocTestRunner(optionflags=flags).run(
        test, out=report.append, clear_globs=False
    )
    assert test.examples
    assert not report, "".join(report)
    namespace.update(test.globs)


def run_console(page: Path, block: Block, _: dict[str, object]) -> None:
    command, _, shown = block.code.partition("\n")
    start = "$ python -m cmdx"
    assert command.startswith(start), f"{page.name}: cannot run {command!r}"
    out = io.StringIO()
    with redirect_stdout(out):
        main(command.removeprefix(start).split())
    check_same(page, block.line, shown.strip("\n"), out.getvalue().strip("\n"))


RUNNERS = {"python": run_python, "pycon": run_pycon, "console": run_console}


@pytest.fixture
def namespace(monkeypatch):
    """A module for the page, with everything put back afterwards that it changed."""
    module = ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", module)
    monkeypatch.setattr(retriers, "_entries", dict(retriers._entries))
    with clock.use(VirtualClock()):
        yield vars(module)
    structlog.reset_defaults()
    for signal in SIGNALS:
        for receiver in list(signal.receivers.values()):
            signal.disconnect(receiver() if isinstance(receiver, ref) else receiver)


@every_page
def test_the_code_of_a_page_runs_and_prints_what_is_shown(page, namespace):
    for block in blocks_of(page.read_text("utf-8")):
        if block.kind in RUNNERS:
            RUNNERS[block.kind](page, block, namespace)


@every_page
def test_a_page_has_one_sentence_per_line(page):
    prose = FENCE.sub("", page.read_text("utf-8"))
    prose = re.sub(r"`[^`\n]*`", "code", prose)
    lines = [line for line in prose.splitlines() if not line.startswith("|")]
    crowded = [line for line in lines if re.search(r"[a-z)*_][.!?] +[A-Z*`\[]", line)]
    assert crowded == []


@every_page
def test_the_links_of_a_page_lead_somewhere(page):
    targets = re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text("utf-8"))
    missing = [each for each in targets if not (page.parent / each).exists()]
    assert missing == []


def test_the_tests_shown_in_the_how_to_pass(tmp_path):
    page = (ROOT / "docs" / "how-to" / "testing.md").read_text("utf-8")
    code = [block.code for block in blocks_of(page) if block.kind == "python"]
    shown = tmp_path / "test_shown.py"
    shown.write_text("\n".join(code), "utf-8")
    finished = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "test_shown.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stdout


@pytest.mark.parametrize(
    ("shown", "real"),
    [
        ("2", "3"),
        ("✓ Greet 0.2 ms", "✓ Greet 9.0 ms"),
        ("✓ Greet 0.2 ms", "✓ Greet"),
        ("a … c", "a b d"),
        ("one", "one\ntwo"),
        ("", "something"),
    ],
)
def test_a_page_that_shows_something_else_is_noticed(shown, real):
    assert not same(shown, real)


@pytest.mark.parametrize(
    ("shown", "real"),
    [
        ("2", "2"),
        ("✓ Greet 0.2 ms: done", "✓ Greet 0.0 ms: done"),
        ("a … c", "a b\nb c"),
        ("text\n", "text"),
    ],
)
def test_a_page_that_shows_the_truth_passes(shown, real):
    assert same(shown, real)


@pytest.mark.parametrize(
    "code",
    [
        "1 + 1  # -> 3",
        "print('unseen')",
        "number = 2  # -> 3",
        "raise ValueError",
        "def double(n):\n    return 2 * n  # -> 4\n",
    ],
)
def test_a_block_that_lies_fails(code, namespace):
    with pytest.raises((AssertionError, ValueError)):
        run_python(ROOT / "README.md", Block("python", code, 0, ""), namespace)
