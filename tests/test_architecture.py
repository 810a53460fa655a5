"""The house holds to its drawings: imports follow the arrows, the surface is tidy."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import cmdx

# Who stands where. A module imports only from lines below its own.
LINES = """
    __main__
    cli
    demo  inspecting  testing  pictures  middlewares  guidance
    __init__
    workflow
    executors  merging
    task
    invocation
    lifecycle
    working
    endings
    blueprint  schema
    resolving
    inputs  callbacks  middleware  deprecation  adhoc
    outputs  retry
    coercion  gates  retriers
    result
    chain
    validation  log  telemetry  declarations  context  registry  arity
    budget  deadlines
    outcome
    exceptions  clock  classifying
"""

HEIGHTS = {
    name: -number
    for number, line in enumerate(LINES.strip().splitlines())
    for name in line.split()
}

PACKAGE = Path(cmdx.__file__).parent
SOURCES = {
    path: ast.parse(path.read_text(encoding="utf-8"))
    for path in sorted(PACKAGE.rglob("*.py"))
}
EVERY_SOURCE = pytest.mark.parametrize(
    "path", SOURCES, ids=lambda path: path.relative_to(PACKAGE).as_posix()
)


def place_of(path):
    """The name a file has in the table: a module, or the folder it lies in."""
    first = path.relative_to(PACKAGE).parts[0]
    return first.removesuffix(".py")


def is_for_type_checkers(node):
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def run_on_import(node):
    """Yield the statements that run when a module is imported."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if is_for_type_checkers(child):
            for other in child.orelse:
                yield other
                yield from run_on_import(other)
            continue
        yield child
        yield from run_on_import(child)


def imported(nodes):
    """Yield the full names that import statements name."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def places_in(names):
    """The places of the table that full names lead to."""
    for name in names:
        if name.split(".")[0] == "cmdx":
            second = name.split(".")[1] if "." in name else "__init__"
            is_module = (PACKAGE / second).exists() or (
                PACKAGE / f"{second}.py"
            ).exists()
            yield second if is_module else "__init__"


# -- the arrows -----------------------------------------------------------------


@EVERY_SOURCE
def test_every_module_has_its_place(path):
    assert place_of(path) in HEIGHTS


@EVERY_SOURCE
def test_imports_point_downwards(path):
    here = place_of(path)
    below = {name for name, height in HEIGHTS.items() if height < HEIGHTS[here]}
    used = set(places_in(imported(run_on_import(SOURCES[path])))) - {here}

    assert used - below == set()


@EVERY_SOURCE
def test_imports_are_written_in_full(path):
    relative = [
        ast.unparse(node)
        for node in ast.walk(SOURCES[path])
        if isinstance(node, ast.ImportFrom) and node.level
    ]

    assert relative == []


def test_the_arrows_are_really_looked_at():
    task = SOURCES[PACKAGE / "task.py"]

    assert {"lifecycle", "blueprint"} <= set(places_in(imported(run_on_import(task))))
    assert "result" not in places_in(imported(run_on_import(task)))
    assert "result" in places_in(imported(ast.walk(task)))


# -- time and chance ------------------------------------------------------------

FOREIGN_CLOCKS = {"time", "random", "secrets"}
READINGS = {
    "asyncio.sleep",
    "date.today",
    "datetime.now",
    "datetime.today",
    "datetime.utcnow",
    "os.getrandom",
    "os.urandom",
    "uuid.uuid1",
    "uuid.uuid4",
    "uuid.uuid7",
}


@pytest.mark.parametrize(
    "path",
    [path for path in SOURCES if path != PACKAGE / "clock.py"],
    ids=lambda path: path.relative_to(PACKAGE).as_posix(),
)
def test_only_the_clock_reads_time_sleeps_or_draws(path):
    nodes = list(ast.walk(SOURCES[path]))
    names = set(imported(nodes))
    attributes = {
        ast.unparse(node) for node in nodes if isinstance(node, ast.Attribute)
    }

    assert {name for name in names if name.split(".")[0] in FOREIGN_CLOCKS} == set()
    assert (names | attributes) & READINGS == set()


# -- the surface ----------------------------------------------------------------


def test_all_is_sorted():
    assert cmdx.__all__ == sorted(cmdx.__all__)


def test_all_is_complete():
    source = SOURCES[PACKAGE / "__init__.py"]
    ours = [name for name in imported(ast.walk(source)) if name.startswith("cmdx")]
    names = {name.rpartition(".")[2] for name in ours}

    assert set(cmdx.__all__) == names
    assert len(cmdx.__all__) == len(set(cmdx.__all__))


@pytest.mark.parametrize("name", cmdx.__all__)
def test_every_public_name_can_be_imported(name):
    names = {}
    exec(f"from cmdx import {name}", names)  # noqa: S102

    assert names[name] is getattr(cmdx, name)


PROMISED = """
    Task Result Chain Context Errors Status State Fault
    before_execution before_validation around_execution after_execution
    on_complete on_interrupted on_success on_skipped on_failed on_ok on_ko
    middleware retry_on retriers RetryOptions
    task_started task_deprecated task_retried task_rolled_back task_executed
    telemetry enable_logging
    CmdxError DefinitionError ImplementationError CallbackError MiddlewareError
    DeprecatedTaskError FinishedTaskError UnknownContextKey UnknownEntryError
    NoValueError
    required optional output private coercions
"""


def test_nothing_that_was_promised_is_missing():
    assert set(PROMISED.split()) - set(cmdx.__all__) == set()


def test_the_package_is_typed():
    assert (PACKAGE / "py.typed").exists()


@pytest.mark.parametrize("heavy", ["asyncio", "structlog", "sqlite3"])
def test_importing_cmdx_stays_light(heavy):
    program = f"import sys, cmdx; sys.exit({heavy!r} in sys.modules)"
    command = [sys.executable, "-c", program]

    assert subprocess.run(command, check=False).returncode == 0  # noqa: S603


def test_a_plain_run_with_retries_does_not_import_asyncio():
    program = """if True:
        import sys
        from cmdx import Task, retry_on

        @retry_on(TimeoutError, limit=2, delay=0)
        class Tired(Task[None]):
            def work(self):
                raise TimeoutError

        retries = Tired.execute().retries
        sys.exit(retries != 2 or "asyncio" in sys.modules)
    """
    command = [sys.executable, "-c", program]

    assert subprocess.run(command, check=False).returncode == 0  # noqa: S603
