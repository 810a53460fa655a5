"""Imports point downwards, and the public names are complete and light to import."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

import cmdx
from cmdx.extras import EXTRAS

# Who stands where. A file imports only from lines below its own; a name alone is a
# whole package, or a file of the top level.
LINES = """
    __main__
    cli.main
    cli.demo  cli.demo_delivery  cli.demo_queue  cli.inspect  cli.migrate  cli.run
    cli.completion
    cli.queues
    cli.describe  cli.job_texts  cli.live  cli.pages  cli.processes
    cli.targets  cli.trees
    cli.reports
    delivery
    queue
    operations  engines
    stores  wire  web
    testing  pictures  middlewares  guidance  opentelemetry
    __init__
    pickling
    workflow.workflow
    workflow.sequence
    workflow.parallel
    workflow.results
    workflow.undo  workflow.wiring
    workflow.steps
    workflow.executors  workflow.merging
    workflow.isolation
    workflow.plain
    task
    run.invocation
    run.lifecycle
    run.attempts  run.wrappers
    run.ending
    run.continuation
    run.record
    declare.blueprint  inputs.schema
    declare.keywords  declare.middleware
    inputs.pipeline
    inputs.fallback
    inputs.coercion  retry.inline  declare.hooks
    inputs.structures  inputs.classes  retry.decide  retry.strategies
    inputs.collect  inputs.resolve  inputs.scalars  retry.policy
    inputs.fields
    inputs.outputs
    inputs.validation  declare.gates
    inputs.constraints  inputs.blank  inputs.patterns
    inputs.annotations
    result
    chain  log
    inputs.errors  telemetry  context  retry.classify
    declare.registry  declare.decorators  declare.signatures  declare.methods  report
    retry.budget  run.deadlines
    declare.checks
    outcome  inputs.texts
    exceptions  clock  extras  locks  values  run.scopes
"""

HEIGHTS = {
    name: -number
    for number, line in enumerate(LINES.strip().splitlines())
    for name in line.split()
}

DOCSTRING_ONLY = "the __init__.py of a package, which imports nothing"

PACKAGE = Path(cmdx.__file__).parent
SOURCES = {
    path: ast.parse(path.read_text(encoding="utf-8"))
    for path in sorted(PACKAGE.rglob("*.py"))
}
EVERY_SOURCE = pytest.mark.parametrize(
    "path", SOURCES, ids=lambda path: path.relative_to(PACKAGE).as_posix()
)


def place_of(path):
    """The name of a file in the table: its own, or that of its package."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    names = (".".join(parts), parts[0])
    return next((name for name in names if name in HEIGHTS), DOCSTRING_ONLY)


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


def file_of(name):
    """The file that a full name leads to, whatever it names in there."""
    parts = name.split(".")[1:]
    while True:
        folder = PACKAGE.joinpath(*parts)
        for path in (folder / "__init__.py", folder.with_suffix(".py")):
            if path in SOURCES:
                return path
        parts.pop()


def places_in(names):
    """The places of the table that full names lead to."""
    ours = (name for name in names if name.split(".")[0] == "cmdx")
    return map(place_of, map(file_of, ours))


# -- the arrows -----------------------------------------------------------------


@EVERY_SOURCE
def test_every_module_has_its_place(path):
    if place_of(path) == DOCSTRING_ONLY:
        assert path.name == "__init__.py"
        assert list(imported(ast.walk(SOURCES[path]))) == []
    else:
        assert place_of(path) in HEIGHTS


@EVERY_SOURCE
def test_imports_point_downwards(path):
    here = place_of(path)
    if here == DOCSTRING_ONLY:
        return
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

    assert {"run.lifecycle", "declare.blueprint"} <= set(
        places_in(imported(run_on_import(task)))
    )
    assert "result" not in places_in(imported(run_on_import(task)))
    assert "result" in places_in(imported(ast.walk(task)))


@EVERY_SOURCE
def test_loop_variables_name_the_thing(path):
    loops = (
        node.target
        for node in ast.walk(SOURCES[path])
        if isinstance(node, ast.For | ast.AsyncFor | ast.comprehension)
    )

    assert "each" not in map(ast.unparse, loops)


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


@pytest.mark.parametrize(
    "heavy",
    [
        "asyncio",
        "structlog",
        "sqlite3",
        "psycopg",
        "opentelemetry",
        "cmdx.wire",
        "cmdx.stores",
        "cmdx.operations",
        "cmdx.queue",
    ],
)
def test_importing_cmdx_stays_light(heavy):
    program = f"import sys, cmdx; sys.exit({heavy!r} in sys.modules)"
    command = [sys.executable, "-c", program]

    assert subprocess.run(command, check=False).returncode == 0  # noqa: S603


@pytest.mark.parametrize("heavy", ["asyncio", "structlog"])
def test_a_plain_run_with_retries_stays_light(heavy):
    program = f"""if True:
        import sys
        from cmdx import Task, retry_on

        @retry_on(TimeoutError, limit=2, delay=0)
        class Tired(Task[None]):
            def work(self):
                raise TimeoutError

        retries = Tired.execute().retries
        sys.exit(retries != 2 or {heavy!r} in sys.modules)
    """
    command = [sys.executable, "-c", program]

    assert subprocess.run(command, check=False).returncode == 0  # noqa: S603


# -- what people find ------------------------------------------------------------


def printed_by(program):
    """What *program* prints in a process of its own, where nothing is imported yet."""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603
    return done.stdout


def test_dir_names_all_that_is_public_before_it_is_used():
    names = printed_by("import cmdx; print(*dir(cmdx))").split()

    assert names == sorted(names)
    assert set(cmdx.__all__) < set(names)
    assert [name for name in names if name.startswith("_")] == [
        "__all__",
        "__doc__",
        "__file__",
        "__name__",
        "__path__",
        "__version__",
    ]


PUBLIC_PACKAGES = [
    path.parent.name
    for path in SOURCES
    if path.name == "__init__.py" and "__all__" in path.read_text(encoding="utf-8")
    if path.parent != PACKAGE
]


@pytest.mark.parametrize("package", PUBLIC_PACKAGES)
def test_dir_names_a_public_package_once_it_is_imported(package):
    program = f"import cmdx{{}}; print({package!r} in dir(cmdx), 'retry' in dir(cmdx))"

    assert printed_by(program.format("")) == "False False\n"
    assert printed_by(program.format(f".{package}")) == "True False\n"


def test_everything_that_dir_names_is_there():
    assert [name for name in dir(cmdx) if not hasattr(cmdx, name)] == []


def test_the_version_is_that_of_the_distribution():
    assert cmdx.__version__ == version("pycmdx")


def test_what_is_said_of_the_extras_is_what_they_install():
    project = tomllib.loads(Path(PACKAGE.parent, "pyproject.toml").read_text("utf-8"))
    extras = project["project"]["optional-dependencies"]

    assert {name: tuple(libraries) for name, libraries in extras.items()} == EXTRAS


@pytest.mark.parametrize("engine", ["celery", "dramatiq"])
def test_an_engine_that_is_missing_is_named_with_its_extra(engine):
    program = f"""if True:
        import sys
        sys.modules[{engine!r}] = None
        try:
            import cmdx.engines.{engine}
        except ImportError as error:
            print(error)
    """

    assert f"the extra {engine!r} of pycmdx has: pip install" in printed_by(program)


def test_the_version_is_looked_up_only_when_asked_for():
    program = "import sys, cmdx; print('importlib.metadata' in sys.modules)"
    before = "import sys, attrs, blinker; print('importlib.metadata' in sys.modules)"

    assert printed_by(program) == printed_by(before)


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="'cmdx' has no attribute 'Taks'"):
        _ = cmdx.Taks


@pytest.mark.parametrize("name", ["AsyncTaskError", "DeadlineExceeded", "classifier"])
def test_what_users_catch_and_ask_is_public_at_the_top(name):
    assert name in cmdx.__all__


def test_retry_is_a_package_and_not_the_decorator():
    from cmdx import retry

    assert retry.__name__ == "cmdx.retry"
    assert retry.__path__
