"""
Every python block of the README and the docs runs, and shows what it really prints.

- The blocks of one page share a namespace, in order, on a clock that does not sleep.
- ``expression  # -> repr`` is compared with the repr of the expression, or with what
  it printed when it has no value.
- What a ``python`` block prints is compared with the ``text`` block right after it.
- A ``pycon`` block is a doctest; in a ``console`` block ``$ python -m cmdx`` is run.
- ``…`` in an expectation stands for anything, and durations may differ a little.
- In a command, a page is the module ``app``.
- Where ``<!-- needs PostgreSQL -->`` stands alone on a line, the rest of the page needs
  a server, as ``DATABASE_URL``; without one it is skipped with a reason. ``<!-- needs
  RabbitMQ and Redis -->`` gives it ``BROKER_URL``, ``RESULTS_URL`` and the name of a
  queue, ``SHOP_QUEUE``.
- A block right below ``<!-- file app.py -->`` is written to that file as well, and a
  command right below ``<!-- in the background -->`` runs until the page ends.
"""

from __future__ import annotations

import ast
import doctest
import importlib.util
import inspect
import io
import json
import os
import re
import subprocess
import sys
from collections import Counter
from contextlib import redirect_stdout
from enum import EnumType
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from secrets import token_hex
from signal import SIGKILL
from types import ModuleType
from typing import NamedTuple, get_overloads
from urllib.parse import urlsplit
from weakref import ref

import pytest
import structlog
from services import close_celery, rabbitmq_address, redis_address

import cmdx
from cmdx import (
    clock,
    delivery,
    opentelemetry,
    operations,
    queue,
    retriers,
    telemetry,
    web,
)
from cmdx.cli.main import main

ROOT = Path(__file__).parents[1]
DOCS = sorted((ROOT / "docs").rglob("*.md"))
PAGES = [ROOT / "README.md", *(page for page in DOCS if "_build" not in page.parts)]
PACKAGE = ROOT / "cmdx"
CONTRIBUTING = ROOT / ".github" / "CONTRIBUTING.md"
SIGNALS = [
    telemetry.task_started,
    telemetry.task_deprecated,
    telemetry.task_retried,
    telemetry.task_rolled_back,
    telemetry.task_executed,
    telemetry.task_cancelled,
]
OPERATION_SIGNALS = [
    operations.operation_admitted,
    operations.operation_sealed,
    operations.operation_released,
    operations.operation_replayed,
    operations.operation_indeterminate,
]
QUEUE_SIGNALS = [
    getattr(queue, name)
    for name in queue.__all__
    if name.startswith(("job_", "schedule_"))
]
DELIVERY_SIGNALS = [
    delivery.delivery_sent,
    delivery.delivery_failed,
    delivery.delivery_dropped,
    delivery.courier_changed,
]
NEEDS = re.compile(r"^<!-- needs (.+) -->$", re.MULTILINE)
NOTE = re.compile(r"^<!-- (.+) -->\n+\Z", re.MULTILINE)
FENCE = re.compile(r"^```([^\s`]*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ARROW = "# -> "
DURATION = r" *\d+(?:\.\d+)? (?:µs|ms)(?!\w)"
LOOSE = re.compile(f"(…|{DURATION})")
MILLISECONDS = {"µs": 0.001, "ms": 1.0}
CLOSE_ENOUGH = 5.0

every_page = pytest.mark.parametrize(
    "page", PAGES, ids=lambda page: str(page.relative_to(ROOT))
)
every_text = pytest.mark.parametrize(
    "page",
    [*PAGES, ROOT / "CHANGELOG.md", *sorted((ROOT / ".github").glob("*.md"))],
    ids=lambda page: str(page.relative_to(ROOT)),
)


class Block(NamedTuple):
    kind: str
    code: str
    line: int
    shown: str
    """What the text block right after it shows."""
    note: str = ""
    """The comment right above it."""


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
        note = NOTE.search(text[: fence.start()])
        blocks.append(Block(kind, code, line, shown, note[1] if note else ""))
    return blocks


def same(shown: str, real: str) -> bool:
    pieces = LOOSE.split(shown.rstrip())
    pattern = "".join(
        r".*?" if piece == "…" else f"({DURATION})" if loose else re.escape(piece)
        for number, piece in enumerate(pieces)
        for loose in [number % 2 == 1]
    )
    match = re.fullmatch(pattern, real.rstrip(), re.DOTALL)
    if match is None:
        return False
    times = [piece for piece in pieces[1::2] if piece != "…"]
    return all(
        abs(milliseconds(time) - milliseconds(found)) <= CLOSE_ENOUGH
        for time, found in zip(times, match.groups(), strict=True)
    )


def milliseconds(duration: str) -> float:
    number, unit = duration.split()
    return float(number) * MILLISECONDS[unit]


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
    command = os.path.expandvars(command)
    start = "$ python -m cmdx"
    assert command.startswith(start), f"{page.name}: cannot run {command!r}"
    out = io.StringIO()
    with redirect_stdout(out):
        main(command.removeprefix(start).split())
    check_same(page, block.line, shown.strip("\n"), out.getvalue().strip("\n"))


RUNNERS = {"python": run_python, "pycon": run_pycon, "console": run_console}


@pytest.fixture
def namespace(monkeypatch, tmp_path):
    """A module for the page, with everything put back afterwards that it changed."""
    monkeypatch.chdir(tmp_path)
    module = ModuleType("app")
    monkeypatch.setitem(sys.modules, "app", module)
    monkeypatch.setattr(retriers, "_entries", dict(retriers._entries))
    own, *others = web.statuses.maps
    monkeypatch.setattr(web.statuses, "maps", [own.copy(), *others])
    with clock.use(VirtualClock()):
        yield vars(module)
    structlog.reset_defaults()
    opentelemetry.uninstrument()
    for signal in [
        *SIGNALS,
        *OPERATION_SIGNALS,
        *QUEUE_SIGNALS,
        *DELIVERY_SIGNALS,
    ]:
        for receiver in list(signal.receivers.values()):
            signal.disconnect(receiver() if isinstance(receiver, ref) else receiver)


@pytest.fixture
def unconfigured_django():
    """Let a page configure Django, whatever other tests of this process have done."""
    conf = import_module("django.conf")
    connections = import_module("django.db").connections
    places = vars(conf.settings), vars(connections)
    before = [dict(place) for place in places]
    fresh = [{"_wrapped": conf.empty}, vars(type(connections)())]
    for values in (fresh, before):
        for place, content in zip(places, values, strict=True):
            place.clear()
            place.update(content)
        if values is fresh:
            yield


@pytest.fixture
def postgres(monkeypatch):
    """Return what gives a page a database of its own, or skips the rest of it."""
    server = os.environ.get("CMDX_TEST_POSTGRES", "postgresql://127.0.0.1:5432/test")
    made = []

    def offer():
        psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed")
        try:
            connection = psycopg.connect(server, autocommit=True, connect_timeout=3)
        except psycopg.OperationalError as error:
            pytest.skip(f"no PostgreSQL server: {error}")
        name = f"cmdx_docs_{os.getpid()}_{token_hex(4)}"  # stores are known by it
        connection.execute(f"create database {name}")
        made.append((connection, name))
        address = urlsplit(server)._replace(path=f"/{name}").geturl()
        monkeypatch.setenv("DATABASE_URL", address)

    yield offer
    for connection, name in made:
        connection.execute(f"drop database {name} with (force)")
        connection.close()


@pytest.fixture
def brokers(monkeypatch, namespace):
    """Return what gives a page a queue of its own on RabbitMQ, or skips the rest."""
    names = []

    def offer():
        monkeypatch.setenv("BROKER_URL", rabbitmq_address())
        monkeypatch.setenv("RESULTS_URL", redis_address())
        names.append(f"cmdx_docs_{token_hex(8)}")
        monkeypatch.setenv("SHOP_QUEUE", names[-1])
        monkeypatch.setenv("CELERY_WORKER_HOSTNAME", f"{names[-1]}@localhost")
        for what in ("MINGLE", "GOSSIP"):  # with workers of other tests
            monkeypatch.setenv(f"CELERY_WORKER_WITHOUT_{what}", "1")

    yield offer
    for name in names:
        close_engines(namespace)
        delete_queues(name)


def close_engines(namespace):
    """Close the connections of a page, which would be open until the process ends."""
    from celery import Celery
    from dramatiq import Broker
    from dramatiq.results.backends import RedisBackend

    for value in namespace.values():
        if isinstance(value, Broker):
            value.close()
        if isinstance(value, RedisBackend):
            value.client.connection_pool.disconnect()
        if isinstance(value, Celery):
            close_celery(value)


def delete_queues(name):
    from kombu import Connection

    with Connection(rabbitmq_address()) as connection:
        for end in ("", ".dead", ".DQ", ".XQ"):
            connection.default_channel.queue_delete(name + end)
        connection.default_channel.exchange_delete(name)


@pytest.fixture
def background(tmp_path):
    """Return what runs a command in the background, until the page ends."""
    folder = Path(sys.executable).parent  # has celery and dramatiq
    started = []

    def start(command):
        paths = os.pathsep.join([str(folder), os.environ["PATH"]])
        with (tmp_path / "output").open("ab") as output:
            process = subprocess.Popen(  # noqa: S602 -- as our own page says
                command,
                shell=True,
                cwd=tmp_path,
                env={**os.environ, "PATH": paths},
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        started.append(process)

    yield start
    for process in started:
        os.killpg(process.pid, SIGKILL)
        process.wait()
    if started:
        sys.stdout.write((tmp_path / "output").read_text("utf-8"))  # if a test fails


@pytest.fixture
def servers(postgres, brokers):
    """What gives a page a server, by its name in a comment of the page."""
    return {"PostgreSQL": postgres, "RabbitMQ and Redis": brokers}


@every_page
def test_the_code_of_a_page_runs_and_prints_what_is_shown(
    page, namespace, servers, background, request
):
    text = page.read_text("utf-8")
    if re.search(r"^(import|from) django", text, re.MULTILINE):
        request.getfixturevalue("unconfigured_django")
    needs = {text.count("\n", 0, n.start()): n[1] for n in NEEDS.finditer(text)}
    for block in blocks_of(text):
        for line in [line for line in needs if line < block.line]:
            servers[needs.pop(line)]()
        if block.note.startswith("file "):
            Path(block.note.removeprefix("file ")).write_text(block.code, "utf-8")
        if block.note == "in the background":
            background(block.code)
        if block.kind in RUNNERS:
            RUNNERS[block.kind](page, block, namespace)


@every_page
def test_the_comments_of_a_page_are_those_that_mean_something(page):
    known = r"needs (PostgreSQL|RabbitMQ and Redis)|file [\w.]+|in the background"
    comments = re.findall(r"<!-- (.+) -->", page.read_text("utf-8"))
    assert [each for each in comments if not re.fullmatch(known, each)] == []


def test_a_block_knows_the_comment_right_above_it():
    text = "<!-- needs PostgreSQL -->\n\n<!-- file app.py -->\n\n```python\n1\n```\n\n"
    first, second = blocks_of(f"{text}```python\n2\n```\n")

    assert first.note == "file app.py"
    assert second.note == ""


@every_text
def test_a_page_has_one_sentence_per_line(page):
    prose = FENCE.sub("", page.read_text("utf-8"))
    prose = re.sub(r"`[^`\n]*`", "code", prose)
    lines = [line for line in prose.splitlines() if not line.startswith("|")]
    crowded = [line for line in lines if re.search(r"[a-z)*_][.!?] +[A-Z*`\[]", line)]
    assert crowded == []


@every_text
def test_the_links_of_a_page_lead_somewhere(page):
    targets = re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text("utf-8"))
    missing = [each for each in targets if not (page.parent / each).exists()]
    assert missing == []


@pytest.mark.parametrize(
    "name", ["how-to/testing", "how-to/testing-jobs", "explanation/async"]
)
def test_the_tests_shown_on_a_page_pass(name, tmp_path):
    page = (ROOT / "docs" / f"{name}.md").read_text("utf-8")
    code = [block.code for block in blocks_of(page) if block.kind == "python"]
    shown = tmp_path / "test_shown.py"
    shown.write_text("\n".join(code), "utf-8")
    options = ["-p", "no:cacheprovider", "-o", "asyncio_mode=auto"]
    finished = subprocess.run(  # noqa: S603 -- as our own pages say
        [sys.executable, "-m", "pytest", *options, "test_shown.py"],
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
        ("✓ Greet 200 µs", "✓ Greet 9.00 ms"),
        ("✓ Greet 200 µs", "✓ Greet 0 µss"),
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
        ("✓ Greet 85 µs: done", "✓ Greet 0 µs: done"),
        ("✓ Greet  1.20 ms  done", "✓ Greet  0 µs  done"),
        ("✓ Greet  150.9 ms  done", "✓ Greet   150 ms  done"),
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


@every_text
def test_a_checkout_is_installed_as_the_readme_does(page):
    commands = re.findall(r"pip install .*", page.read_text("utf-8"))
    others = [command for command in commands if re.match(r'pip install "?\.', command)]
    assert others == [], 'write: pip install -e ".[queue]"'


# -- modules that workers import --------------------------------------------------

ENQUEUING = {"enqueue", "enqueue_many", "schedule", "drain", "worker"}


def run_by_import(nodes):
    """Yield what an import of a module runs, without the bodies of functions."""
    for node in nodes:
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from run_by_import(ast.iter_child_nodes(node))


def is_task(node):
    return isinstance(node, ast.ClassDef) and "work" in {
        statement.name for statement in node.body if hasattr(statement, "name")
    }


def calls_of_a_queue(code):
    """The calls that use a queue when a block with tasks is imported as a module."""
    body = ast.parse(code).body
    if not any(map(is_task, body)):
        return []
    called = [node.func for node in run_by_import(body) if isinstance(node, ast.Call)]
    names = [call.attr for call in called if isinstance(call, ast.Attribute)]
    return [name for name in names if name in ENQUEUING]


@every_page
def test_a_module_that_a_worker_imports_only_declares(page):
    text = page.read_text("utf-8")
    if "cmdx.queue" not in text:
        return
    blocks = [block for block in blocks_of(text) if block.kind == "python"]
    calls = {block.line: calls_of_a_queue(block.code) for block in blocks}
    assert {line: names for line, names in calls.items() if names} == {}


def test_a_module_that_enqueues_is_noticed():
    declared = "class Pay(Task[None]):\n    def work(self): ...\n"
    inside = "def pay():\n    queue.enqueue(Pay())\n"

    assert calls_of_a_queue(declared + "queue.enqueue(Pay())") == ["enqueue"]
    assert calls_of_a_queue(declared + "with queue.worker(): ...") == ["worker"]
    assert calls_of_a_queue(declared + inside) == []
    assert calls_of_a_queue("queue.enqueue(Pay())") == []


# -- what type checkers say -------------------------------------------------------

LEARNT_FROM = [ROOT / "README.md", *sorted((ROOT / "docs" / "tutorial").glob("*.md"))]


def code_of(page):
    """The python blocks of a page, each line at the number it has on the page."""
    lines = []
    for block in blocks_of(page.read_text("utf-8")):
        if block.kind == "python":
            lines += [""] * (block.line - len(lines)) + block.code.splitlines()
    return "\n".join(lines) + "\n"


def test_a_type_checker_accepts_what_readers_type_along(tmp_path):
    for page in LEARNT_FROM:
        name = page.stem.replace("-", "_").lower()
        (tmp_path / f"shown_{name}.py").write_text(code_of(page), "utf-8")
    settings = {
        "include": ["."],
        "typeCheckingMode": "standard",
        "reportRedeclaration": "none",  # a tutorial writes its class again and again
        "reportUnusedExpression": "none",  # and asks what something is
    }
    config = tmp_path / "pyrightconfig.json"
    config.write_text(json.dumps(settings), "utf-8")
    options = ["--pythonpath", sys.executable, "--project", config]

    done = subprocess.run(  # noqa: S603 -- a type checker
        [sys.executable, "-m", "basedpyright", *options],
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "No source files found" not in done.stdout


# -- the page for contributors ----------------------------------------------------


TOUR = ROOT / "docs" / "explanation" / "how-the-code-is-organised.md"
TREE_LINE = re.compile(r"^([\w/]+\.py)([ │├└─]+)([\w.]+)", re.MULTILINE)


def test_the_tour_of_the_code_names_every_file_and_no_other():
    table = TOUR.read_text("utf-8").partition("## The files")[2].partition("\n## ")[0]
    named = re.findall(r"[\w/]+\.py", table)
    files = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if path.name != "__init__.py"
    }

    assert sorted(named) == sorted({*files, "__init__.py"})


def calls_shown():
    """Yield each call in the tree of the tour, as the calls that lead to it."""
    path, root = [], None
    for file, lines, name in TREE_LINE.findall(TOUR.read_text("utf-8")):
        column = len(file + lines)
        root = column if root is None else root
        path[(column - root) // len("├─ ") :] = [(file, name)]
        yield tuple(path)


def calls_made(function):
    """Call *function*; return each call of ours in it, as the calls that lead to it."""
    calls = []

    def note(frame, event, _):
        path = []
        while event == "call" and frame is not None:
            file = Path(frame.f_code.co_filename)
            if file.is_relative_to(PACKAGE):
                name = frame.f_code.co_qualname
                path.insert(0, (file.relative_to(PACKAGE).as_posix(), name))
            frame = frame.f_back
        if path:
            calls.append(tuple(path))

    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(None)
    return calls


def test_the_tour_of_the_code_shows_the_calls_of_a_run(namespace):
    first = next(b for b in blocks_of(TOUR.read_text("utf-8")) if b.kind == "python")
    run_python(TOUR, first, namespace)
    task = namespace["FetchRate"]
    task.execute(currency="EUR")  # compiles the plan

    made = iter(calls_made(lambda: task.execute(currency="EUR")))
    shown = list(calls_shown())

    assert len(shown) > 20
    assert [call[-1] for call in shown if call not in made] == []  # in this order


def test_contributors_find_every_part_of_the_checks():
    script = ROOT / ".ci" / "run"
    parts = re.search(r"^PARTS=\((.+)\)$", script.read_text("utf-8"), re.MULTILINE)
    told = re.findall(r"`\.ci/run (\w+)` \|$", CONTRIBUTING.read_text(), re.MULTILINE)

    assert sorted(told) == sorted(parts[1].split())


def test_a_part_that_is_not_there_is_refused_at_once():
    done = subprocess.run(  # noqa: S603 -- our own script
        [ROOT / ".ci" / "run", "lnit"], capture_output=True, text=True, check=False
    )

    assert done.returncode == 2
    assert done.stdout == ""
    assert 'no part "lnit"; there are lint types test' in done.stderr


# -- llms.txt ---------------------------------------------------------------------


def llms_text():
    """What the build of the docs writes to ``llms.txt``."""
    path = ROOT / "docs" / "llms_txt.py"
    spec = importlib.util.spec_from_file_location("llms_txt", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.llms_text(ROOT / "docs")


LLMS_LINE = re.compile(r"^- \[(.+)\]\((.+?)\): (.+)$", re.MULTILINE)


def test_llms_txt_has_one_line_for_each_page():
    links = [link for _, link, _ in LLMS_LINE.findall(llms_text())]
    listed = [page_of(link) for link in links]
    pages = {page.relative_to(ROOT / "docs").as_posix() for page in PAGES[1:]}

    assert sorted(listed) == sorted(pages - {"index.md"})


def page_of(link):
    """The page that a link of ``llms.txt`` leads to."""
    if link.endswith(".html"):
        return f"{link.removesuffix('.html')}.md"
    return link.removeprefix("_sources/").removesuffix(".txt")


def test_llms_txt_names_what_a_page_of_the_api_has_and_leads_to_its_text():
    described = {link: text for _, link, text in LLMS_LINE.findall(llms_text())}

    assert "`cmdx.Task`" in described["reference/api/tasks.html"]
    assert "`cmdx.on_success`" in described["reference/api/hooks.html"]
    assert described["reference/api/wire.html"].startswith("`cmdx.wire`, `cmdx.wire.")
    assert "_sources/reference/api/tasks.md.txt" not in described
    assert "_sources/reference/api/index.md.txt" in described


def test_llms_txt_describes_a_page_by_its_first_sentence():
    described = {
        page_of(link): (title, text)
        for title, link, text in LLMS_LINE.findall(llms_text())
    }

    title, text = described["reference/wire.md"]
    assert title == "Invocations and results as JSON"
    assert text.startswith("`cmdx.wire` writes invocations and results as JSON")
    assert [path for path, (_, text) in described.items() if "](" in text] == []


# -- the API reference ------------------------------------------------------------

API = ROOT / "docs" / "reference" / "api"
DIRECTIVE = re.compile(r"^\.\. (?P<kind>auto\w+|py:\w+):: (?P<name>[\w.]+)")
MODULES = (
    "clock",
    "delivery",
    "engines",
    "engines.celery",
    "engines.dramatiq",
    "guidance",
    "middlewares",
    "opentelemetry",
    "operations",
    "pictures",
    "queue",
    "stores",
    "telemetry",
    "testing",
    "web",
    "wire",
)
# What is public of those that have no __all__.
PROMISED = {
    "clock": ["Clock", "draw", "now", "use"],
    "engines.celery": ["CeleryEngine"],
    "engines.dramatiq": ["DramatiqEngine"],
    "telemetry": ["connect"],
}


def public_names():
    names = {f"cmdx.{name}" for name in [*cmdx.__all__, *MODULES]}
    for name in MODULES:
        module = import_module(f"cmdx.{name}")
        inside = getattr(module, "__all__", None) or PROMISED[name]
        names |= {f"cmdx.{name}.{member}" for member in inside}
    # The signals are entered once, by their shorter names.
    return names - {f"cmdx.telemetry.{signal.name}" for signal in SIGNALS}


def entries_of(text):
    """Yield the full names of the entries of a page."""
    module = ""
    for found in filter(None, map(DIRECTIVE.match, text.splitlines())):
        kind, name = found["kind"], found["name"]
        if kind in ("py:module", "py:currentmodule"):
            module = name
        if kind.startswith("auto") or kind == "py:module":
            yield name
        elif kind != "py:currentmodule":
            yield f"{module}.{name}"


def test_every_public_name_has_one_entry_in_the_api_reference():
    texts = [page.read_text("utf-8") for page in sorted(API.glob("*.md"))]
    entries = Counter(entry for text in texts for entry in entries_of(text))

    names = {"cmdx", *public_names()}
    missing = sorted(names - entries.keys())
    assert missing == [], f"enter them in {API.relative_to(ROOT)}"
    assert sorted(entries.keys() - names) == []
    assert [name for name, count in entries.items() if count > 1] == []


def test_entries_are_read_with_the_module_they_stand_under():
    text = """
.. py:currentmodule:: cmdx

.. py:data:: retriers
   :type: Registry

.. autofunction:: cmdx.step

.. py:module:: cmdx.guidance

.. py:data:: codes
   .. py:attribute:: nested
"""
    assert list(entries_of(text)) == [
        "cmdx.retriers",
        "cmdx.step",
        "cmdx.guidance",
        "cmdx.guidance.codes",
    ]


def test_every_page_of_the_api_reference_is_in_its_table_and_its_tree():
    index = (API / "index.md").read_text("utf-8")
    pages = {page.stem for page in API.glob("*.md")} - {"index"}

    assert set(re.findall(r"\((\w+)\.md\)", index)) == pages
    assert set(re.findall(r"^(\w+)$", index, re.MULTILINE)) == pages


# -- docstrings -------------------------------------------------------------------


def public_callables():
    """The public functions, classes and methods that take keywords, by name."""
    found = {}
    for name in public_names():
        module, _, last = name.rpartition(".")
        entry = getattr(import_module(module), last)
        if isinstance(entry, EnumType) or not callable(entry):
            continue
        found[name] = entry
        if isinstance(entry, type):
            found |= {f"{name}.{key}": method for key, method in methods_of(entry)}
    return {name: call for name, call in found.items() if any(keywords_of(call))}


def methods_of(cls):
    """Yield the public methods of *cls* that are ours, by name."""
    for name, method in inspect.getmembers(cls, inspect.isroutine):
        module = getattr(method, "__module__", None) or ""
        if not name.startswith("_") and module.startswith("cmdx"):
            yield name, method


def keywords_of(call):
    """Yield the names of what *call* takes by keyword, also of its overloads."""
    overloads = get_overloads(call) if inspect.isfunction(call) else ()
    for form in (call, *overloads):
        try:
            parameters = inspect.signature(form).parameters.values()
        except ValueError:  # an exception without an __init__ of its own
            continue
        for parameter in parameters:
            if parameter.kind is parameter.KEYWORD_ONLY:
                yield parameter.name
            elif options := UNPACKED.fullmatch(str(parameter.annotation)):
                named = find_options(options[1])
                yield from [*named.__required_keys__, *named.__optional_keys__]


def find_options(name):
    """The class of options with this name; some modules import it for checkers only."""
    modules = [module for key, module in sys.modules.items() if key.startswith("cmdx")]
    return next(vars(module)[name] for module in modules if name in vars(module))


UNPACKED = re.compile(r"Unpack\[(\w+)\]")
CALLABLES = public_callables()


ELSEWHERE = re.compile(r"^Do what ``(\w+)`` does|; made by ``([\w.]+)``")
"""How a docstring says that another one explains the keywords."""


def explanation_of(call, name):
    """The docstring of *call*, with the one that it refers to."""
    text = inspect.getdoc(call) or ""
    found = ELSEWHERE.search(text)
    if found is None:
        return text
    other = CALLABLES[f"{name.rpartition('.')[0]}.{found[2] or found[1]}"]
    return f"{text}\n{inspect.getdoc(other)}"


def missing_keywords(call, name=""):
    """The keywords that the docstring of *call* has neither under Args nor in stars."""
    text = explanation_of(call, name)
    return [
        keyword
        for keyword in dict.fromkeys(keywords_of(call))
        if not re.search(rf"^ +{keyword}: |\*{keyword}\*", text, re.MULTILINE)
    ]


@pytest.mark.parametrize("name", sorted(CALLABLES))
def test_a_docstring_names_every_keyword(name):
    assert missing_keywords(CALLABLES[name], name) == []


def test_keywords_of_every_kind_are_looked_at():
    retrying = {"max_attempts", "base_delay", "should_retry", "retry_result"}

    assert retrying <= set(keywords_of(cmdx.Task.retry))
    assert {"limit", "delay", "rule"} <= set(keywords_of(cmdx.retry_on))
    assert {"alias", "ge", "source"} <= set(keywords_of(cmdx.required))
    assert {"default", "factory"} <= set(keywords_of(cmdx.optional))
    assert {"if_", "unless"} == set(keywords_of(cmdx.on_failed))
    assert {"cmdx.Context.dig", "cmdx.testing.stub", "cmdx.step"} <= CALLABLES.keys()


def test_a_keyword_that_is_not_named_is_noticed():
    def pay(amount, *, currency, code=None):
        """Pay *amount* in *currency*."""
        return amount, currency, code

    assert missing_keywords(pay) == ["code"]
