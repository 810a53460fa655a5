"""
``python -m cmdx run module:Task key=value``: run a task.

1. the task is imported                              ``cmdx.cli.targets.import_task``
2. its inputs are read from a file and from words    ``read_inputs``
3. it runs, on a terminal with a live tree           ``run_shown``
4. the result is printed as a tree or as JSON        ``print_result``
5. its status decides the exit code                  ``EXIT_CODES``

With ``--json`` the standard output has nothing but the result, so what the task prints
goes to the standard error.
"""

from __future__ import annotations

import sys
from argparse import RawDescriptionHelpFormatter
from contextlib import contextmanager, nullcontext, redirect_stdout
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from cmdx import log
from cmdx.cli.describe import describe_inputs
from cmdx.cli.pages import open_page
from cmdx.cli.targets import Misuse, import_task
from cmdx.cli.trees import tree_text
from cmdx.extras import how_to_install
from cmdx.inputs.resolve import plain_values
from cmdx.outcome import Status
from cmdx.report import encoding_of
from cmdx.telemetry import task_cancelled
from cmdx.values import json_text
from cmdx.workflow.workflow import Workflow

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager

    from cmdx import Result, Task

EXIT_CODES = {Status.SUCCESS: 0, Status.FAILED: 1, Status.SKIPPED: 3}
INTERRUPTED = 130
"""What shells say of a program that Ctrl-C has ended."""

USAGE = "python -m cmdx run {target} [KEY=VALUE ...] [options]"
DESCRIPTION = f"""\
Run a task, and print what became of it as a tree. On a terminal the tree is shown
while the task runs, if rich is installed.
{how_to_install("cli")}.

Inputs are converted by the annotations of the task. A list takes its key several
times, as in tag=new tag=blue; mappings and objects come from --input.
`python -m cmdx run MODULE:TASK --help` lists the inputs of a task.
"""
CODES = """\
exit codes:
  0    success
  1    failed
  2    misuse: nothing was run, and the standard error says why
  3    skipped
  130  interrupted by Ctrl-C, and rolled back
"""


def add_run(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Add the command ``run``."""
    parser = subparsers.add_parser(
        "run",
        help="run a task",
        usage=USAGE.format(target="MODULE:TASK"),
        description=DESCRIPTION,
        epilog=CODES,
        formatter_class=RawDescriptionHelpFormatter,
        add_help=False,  # that of a task is longer
    )
    add = parser.add_argument
    add("-h", "--help", action="store_true", help="show this, with the inputs if given")
    add("--input", metavar="FILE", help="a JSON object of inputs; - is standard input")
    add("--json", action="store_true", help="print the result as JSON, nothing else")
    add("--html", metavar="FILE", help="write the timeline of the run as a page")
    add("--open", action="store_true", help="open that page in a browser")
    add("--traceback", action="store_true", help="print where the error was raised")
    add("--no-live", action="store_true", help="no tree while it runs, for a debugger")
    parser.set_defaults(run=run_command, cure=input_cure, words=[])


def run_command(asked: argparse.Namespace) -> int:
    """Run the task, or print its help."""
    return print_help(asked) if asked.help else run_asked(asked)


def print_help(asked: argparse.Namespace) -> int:
    """Print the help of the command, or that of a task."""
    if asked.words:
        target = asked.words[0]
        asked.parser.description = describe_inputs(import_task(target))
        asked.parser.usage = USAGE.format(target=target.replace("%", "%%"))
    asked.parser.print_help()
    return 0


def run_asked(asked: argparse.Namespace) -> int:
    """Run the task and print its result; return the exit code."""
    if asked.open and not asked.html:
        raise Misuse("--open needs a page. Write --html FILE as well.")
    with own_output(asked):
        task = invocation_of(asked)
    with open_page(asked.html, opens=asked.open) as write_page:
        with own_output(asked):
            result, interrupt = run_shown(task, is_live=not asked.no_live)
        print_result(result, asked)
        is_written = write_page(result.chain)
    code = exit_code(result, interrupt)
    return code if is_written else code or EXIT_CODES[Status.FAILED]


def exit_code(result: Result[Any], interrupt: BaseException | None) -> int:
    """Return the code of a status, or of what has interrupted the task."""
    if isinstance(interrupt, KeyboardInterrupt):
        sys.stderr.write(f"Interrupted. {rollback_text(result)}\n")
        return INTERRUPTED
    if isinstance(interrupt, SystemExit) and isinstance(interrupt.code, int):
        code = interrupt.code & 0xFF  # what the system keeps of it
        return code or EXIT_CODES[result.status]  # it has failed, even with 0
    return EXIT_CODES[result.status]


def own_output(asked: argparse.Namespace) -> AbstractContextManager[Any]:
    """Return what keeps the output of the task apart from a result as JSON."""
    return redirect_stdout(sys.stderr) if asked.json else nullcontext()


# -- inputs ----------------------------------------------------------------------------


def invocation_of(asked: argparse.Namespace) -> Task[Any]:
    """Return the task with its inputs, or raise ``Misuse``."""
    if not asked.words:
        raise Misuse("run needs a task. Write it as module:Task.")
    target, *words = asked.words
    task = import_task(target)
    inputs = read_inputs(task, asked.input, words)
    try:
        return task(**inputs)
    except TypeError as problem:  # such as an input that it does not have
        raise Misuse(str(problem)) from None


def read_inputs(
    task: type[Task[Any]], path: str | None, words: Sequence[str]
) -> dict[str, Any]:
    """Return the inputs in a file, and those of *words*, which win."""
    given = {} if path is None else inputs_in_file(path)
    form = Form(words)
    values = plain_values(form, task._cmdx_.inputs)
    for key, texts in form.texts.items():
        if len(texts) > 1 and not isinstance(values[key], list):
            raise Misuse(f"{key} is given {len(texts)} times, but takes one value.")
    return {**given, **values}


class Form(dict[str, str]):
    """
    Inputs as words; one that is given several times has several values.

    Args:
        words: Such as ``name=Ada``.
    """

    def __init__(self, words: Sequence[str]) -> None:
        self.texts: dict[str, list[str]] = {}
        for word in words:
            key, sign, text = word.partition("=")
            if not key or not sign:
                raise Misuse(f"{word!r} is no input. Write it as KEY=VALUE.")
            self.texts.setdefault(key, []).append(text)
        super().__init__({key: texts[-1] for key, texts in self.texts.items()})

    def getlist(self, key: str) -> list[str]:
        """Return all values, as the forms of web frameworks do."""
        return self.texts[key]


def input_cure(_: argparse.Namespace, option: str, words: Sequence[str]) -> str:
    """Say how to write an input that was written as an *option*, one of *words*."""
    key, sign, text = option.lstrip("-").partition("=")
    target, *others = [word for word in words if not word.startswith("-")] or [""]
    if not sign:
        after = [word for before, word in pairwise(words) if before == option]
        text = next((word for word in after if word in others), "...")
    example = f"{target or 'module:Task'} {key.replace('-', '_')}={text}"
    return f". Inputs are written without dashes: {example}"


def inputs_in_file(path: str) -> dict[str, Any]:
    """Return the JSON object in a file, or on the standard input."""
    import json
    from pathlib import Path

    name = "the standard input" if path == "-" else path
    try:
        text = read_stdin() if path == "-" else Path(path).read_text("utf-8")
        inputs = json.loads(text)
    except OSError as error:
        raise Misuse(f"{name} cannot be read: {error.strerror}.") from None
    except ValueError as error:
        raise Misuse(f"{name} is not JSON: {error}.") from None
    except RecursionError:
        raise Misuse(f"{name} is nested too deeply. Write it flatter.") from None
    if not isinstance(inputs, dict):
        kind = type(inputs).__name__
        cure = 'Write an object, such as {"name": "Ada"}.'
        raise Misuse(f"{name} has a {kind}, not inputs by name. {cure}")
    return inputs


def read_stdin() -> str:
    """Return what the standard input has; nothing if it is closed."""
    return sys.stdin.read() if sys.stdin else ""


# -- running ---------------------------------------------------------------------------


def run_shown(
    task: Task[Any], *, is_live: bool
) -> tuple[Result[Any], BaseException | None]:
    """Run *task*, and show it meanwhile; return what has interrupted it as well."""
    cancelled: list[Result[Any]] = []

    def keep(_sender: Any, *, result: Result[Any], **facts: Any) -> None:
        if facts["task"] is task:
            cancelled.append(result)

    with task_cancelled.connected_to(keep), live_tree(task, is_live=is_live):
        try:
            return run(task), None
        except BaseException as error:
            if not cancelled:
                raise
            return cancelled[0], error


@contextmanager
def live_tree(task: Task[Any], *, is_live: bool) -> Iterator[None]:
    """Show a tree of what *task* does, if there is a terminal, and rich."""
    # The lines of a log would run into the tree, and say what runs themselves.
    if not is_live or not sys.stderr.isatty() or log.is_enabled():
        yield
        return
    try:
        from cmdx.cli.live import show_live_tree
    except ImportError:
        yield
        return
    with show_live_tree(task):
        yield


def run(task: Task[Any]) -> Result[Any]:
    """Run *task*, in an event loop if it awaits something."""
    if not type(task)._cmdx_.plan.awaits:
        return task.run()
    import asyncio

    return asyncio.run(task.arun())


# -- what became of it -----------------------------------------------------------------


def print_result(result: Result[Any], asked: argparse.Namespace) -> None:
    """Print the result as a tree or as JSON, and a traceback if asked for."""
    text = json_line(result) if asked.json else tree_text(result.chain)
    sys.stdout.write(f"{text}\n")
    if lacks_inputs(result):
        command = f"python -m cmdx run {asked.words[0]} --help"
        sys.stderr.write(f"`{command}` lists the inputs.\n")
    failure = result.caused_failure
    if asked.traceback and failure is not None and failure.cause is not None:
        from traceback import print_exception

        sys.stdout.flush()
        print_exception(failure.cause)


def lacks_inputs(result: Result[Any]) -> bool:
    """Tell whether a required input of the task, or of a step, was not given."""
    failure = result.caused_failure
    if failure is None:
        return False
    is_ours = failure.task is result.task or issubclass(result.task, Workflow)
    return is_ours and any(problem.code == "required" for problem in failure.errors)


def json_line(result: Result[Any]) -> str:
    """Return the facts of *result* as JSON that the standard output can encode."""
    try:
        result.to_json().encode(encoding_of())
    except UnicodeError:
        return json_text(result.to_dict(), ascii_only=True)
    return result.to_json()


def rollback_text(result: Result[Any]) -> str:
    """Say which tasks of a run were rolled back."""
    undone = [done.task.__qualname__ for done in result.chain if done.rolled_back]
    if not undone:
        return "There was nothing to roll back."
    return f"Rolled back: {', '.join(undone)}."
