from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from functools import partial
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    NamedTuple,
    NewType,
    Required,
    TypedDict,
    TypeVar,
)

import attrs
import pytest

import cmdx
from cmdx import (
    Task,
    Workflow,
    group,
    middleware,
    on_failed,
    optional,
    output,
    parallel,
    required,
    retry_on,
    step,
)
from cmdx.cli.describe import describe
from cmdx.cli.main import main

SHOP = '''
"""A shop."""

from datetime import datetime

from cmdx import Task, Workflow, optional, output, parallel, required
from cmdx import on_failed, on_success, retry_on


class Receipt:
    pass


@retry_on(TimeoutError, ConnectionError, limit=5, jitter="exponential")
class ChargeCard(Task[Receipt], tags=("billing", "nightly")):
    """
    Charge an order
    once.

    This is told nowhere.
    """

    order_id: int = required(ge=1, description="the order to charge")
    currency: str = optional(default="EUR", one_of=("EUR", "USD"))
    notes: list[str] = optional(factory=list)
    charged_at: datetime = output(description="when the money moved")

    def work(self):
        return Receipt()

    @on_success
    def thank(self):
        pass

    @on_failed(if_="live")
    def page(self):
        pass

    def live(self):
        return False


class Outer:
    class Refund(Task[None]):
        def work(self):
            pass


class Refunds(Workflow[None]):
    """Give money back."""

    steps = (Outer.Refund, parallel(ChargeCard, Outer.Refund))


class Base(Task[None]):
    order_id: int


API_KEY = "hunter2"
charge = ChargeCard()
'''

CONTRACT = """\
ChargeCard
Charge an order once.

value     Receipt
tags      billing, nightly
run with  execute or aexecute

Inputs
  name      type       given            rules                description
  order_id  int        required         >= 1                 the order to charge
  currency  str        default 'EUR'    one of 'EUR', 'USD'
  notes     list[str]  default by list

Outputs
  name        type      set     description
  charged_at  datetime  always  when the money moved

Hooks
  event       method  when
  on_success  thank
  on_failed   page    if live

Retries
  errors                         limit  delay  jitter
  TimeoutError, ConnectionError  5      0.5 s  exponential

Command line
  python -m cmdx run shop:ChargeCard order_id=...
"""


@pytest.fixture
def shop(tmp_path, monkeypatch):
    """A folder with modules, in which the command is run."""
    for name, text in {
        "shop": SHOP,
        "plain": "from cmdx import Task, Workflow\n\nnumber = 7\n",
        "single": "from cmdx import Task\n\nclass Ship(Task[None]): pass\n",
        "needy": "import a_module_nobody_has\n",
        "broken": "raise RuntimeError('no\\ndatabase')\n",
        "leaving": "import sys\nsys.exit('bye')\n",
    }.items():
        (tmp_path / f"{name}.py").write_text(text, "utf-8")
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for path in tmp_path.glob("*.py"):
        sys.modules.pop(path.stem, None)


class Row(NamedTuple):
    cells: dict[str, str]

    def __getattr__(self, heading: str) -> str:
        return self.cells.get(heading, "")


def table(task: type[Task[Any]], section: str) -> dict[str, Row]:
    """Read the rows of a section by their first cell, as the columns stand."""
    text = describe(task)
    _, _, below = f"\n{text}\n\n".partition(f"\n{section}\n")
    head, *lines = below.partition("\n\n")[0].split("\n")
    starts = [found.start() for found in re.finditer(r"(?<=  )\S", head)]
    ends = [*starts[1:], None]
    headings = [
        head[start:end].strip() for start, end in zip(starts, ends, strict=True)
    ]
    rows = {}
    for line in lines:
        cells = [
            line[start:end].strip() for start, end in zip(starts, ends, strict=True)
        ]
        rows[cells[0]] = Row(dict(zip(headings, cells, strict=True)))
    return rows


def facts(task: type[Task[Any]]) -> dict[str, str]:
    return dict(
        re.split(r"  +", line, maxsplit=1)
        for line in describe(task).partition("\nInputs")[0].splitlines()
        if re.match(r"[a-z ]+  ", line)
    )


# -- the command -----------------------------------------------------------------------


@pytest.mark.usefixtures("shop")
def test_it_prints_the_contract_of_a_task(capsys):
    assert main(["inspect", "shop:ChargeCard"]) == 0
    printed = capsys.readouterr()
    assert printed.out == CONTRACT
    assert printed.err == ""


@pytest.mark.usefixtures("shop")
def test_it_finds_a_task_inside_a_class(capsys):
    assert main(["inspect", "shop:Outer.Refund"]) == 0
    assert capsys.readouterr().out.startswith("Outer.Refund\n")


@pytest.mark.usefixtures("shop")
def test_it_prints_the_steps_of_a_workflow_and_how_to_run_it(capsys):
    assert main(["inspect", "shop:Refunds"]) == 0
    assert (
        capsys.readouterr().out
        == """\
Refunds
Give money back.

value     None
run with  execute or aexecute

Inputs
  none declared: any keyword goes into the context; its steps need order_id

Steps
  step            on failure
  Outer.Refund    stop
  parallel
    ChargeCard    stop
    Outer.Refund  stop

Retries
  none: a failure is final

Command line
  python -m cmdx run shop:Refunds order_id=...
"""
    )


@pytest.mark.usefixtures("shop")
def test_it_does_not_say_how_to_run_what_cannot_be_run(capsys):
    assert main(["inspect", "shop:Base"]) == 0
    assert "cmdx run" not in capsys.readouterr().out


TASKS = "shop is a module with the tasks ChargeCard, Refunds, Base."
HAS = "It is a module with the tasks ChargeCard, Refunds, Base."
SUCH_AS = "Write one of them, such as shop:ChargeCard."
NO_TASK = "Name a class that derives from cmdx.Task;"
NO_MODULE = (
    "Write module:Task, and run this where Python finds the module: "
    "beside it, or where it is installed."
)
BROKEN = "cannot be imported:"

QUESTIONS = {
    "": "'' names no module. Write it as module:Task.",
    ":ChargeCard": "':ChargeCard' names no module. Write it as module:Task.",
    "shop": f"{TASKS} {SUCH_AS}",
    "shop:": f"{TASKS} {SUCH_AS}",
    "single": "single is a module with the task Ship. Write single:Ship.",
    "plain": "plain is a module with no tasks. Name the one that has the task.",
    "shop.Refunds": "there is no module 'shop.Refunds'. Did you mean shop:Refunds?",
    "shop.Refnuds": f"there is no module 'shop.Refnuds'. {NO_MODULE}",
    "nowhere.Ship": f"there is no module 'nowhere'. {NO_MODULE}",
    "./shop.py": "./shop.py is a file. Name the module instead: shop:ChargeCard.",
    "./shop.py:Base": "./shop.py is a file. Name the module instead: shop:Base.",
    "./shop.py:X": "./shop.py is a file. Name the module instead: shop:ChargeCard.",
    "nowhere.py:X": "nowhere.py is a file. Name the module instead: nowhere:X.",
    "nowhere.py": "nowhere.py is a file. Name the module instead: nowhere:Task.",
    "shpo:ChargeCard": f"there is no module 'shpo'. {NO_MODULE}",
    "shop.orders:X": f"there is no module 'shop.orders'. {NO_MODULE}",
    "needy:X": f"the module 'needy' {BROKEN} ModuleNotFoundError: No module named "
    "'a_module_nobody_has'. Make `import needy` work first.",
    "broken:X": f"the module 'broken' {BROKEN} RuntimeError: no database. "
    "Make `import broken` work first.",
    "leaving:X": f"the module 'leaving' {BROKEN} SystemExit: bye. "
    "Make `import leaving` work first.",
    "shop:Crad": f"shop has no 'Crad'. {HAS}",
    "shop:ChargeCrad": f"shop has no 'ChargeCrad'; did you mean 'ChargeCard'? {HAS}",
    "shop:Outer.Refnud": f"shop has no 'Outer.Refnud'; did you mean 'Refund'? {HAS}",
    "shop:Receipt": f"shop:Receipt is not a task but another class. {NO_TASK} {TASKS}",
    "shop:charge": f"shop:charge is not a task but an object of class ChargeCard. "
    f"{NO_TASK} {TASKS}",
    "shop:ChargeCard.order_id": "shop:ChargeCard.order_id is not a task but an object "
    f"of class Field. {NO_TASK} {TASKS}",
    "plain:number": f"plain:number is not a task but an object of class int. {NO_TASK} "
    "plain is a module with no tasks.",
}


@pytest.mark.usefixtures("shop")
@pytest.mark.parametrize(("target", "sentence"), QUESTIONS.items())
def test_a_wrong_question_is_answered_by_one_line_with_the_cure(
    target, sentence, capsys
):
    assert main(["inspect", target]) == 2
    printed = capsys.readouterr()
    assert printed.err == f"{sentence}\n"
    assert printed.out == ""


@pytest.mark.usefixtures("shop")
def test_what_is_no_task_is_not_shown_for_it_may_be_a_secret(capsys):
    assert main(["inspect", "shop:API_KEY"]) == 2
    assert "hunter2" not in capsys.readouterr().err


@pytest.mark.usefixtures("shop")
@pytest.mark.parametrize("target", ["shop:ChargeCard", "broken:ChargeCard"])
def test_the_path_of_modules_is_as_before_afterwards(target, monkeypatch):
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each])
    before = list(sys.path)
    main(["inspect", target])
    assert sys.path == before


AS_A_SCRIPT = """
import sys
sys.path.remove("")
from cmdx.cli.main import main
sys.exit(main())
"""


@pytest.mark.parametrize(
    "program",
    [["-m", "cmdx"], ["-c", AS_A_SCRIPT]],
    ids=["python -m cmdx", "the script"],
)
def test_it_runs_as_a_program_in_the_folder_of_the_module(program, shop):
    finished = subprocess.run(  # noqa: S603 -- ourselves
        [sys.executable, *program, "inspect", "shop:ChargeCard"],
        capture_output=True,
        check=False,
        cwd=shop,
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
    )
    assert finished.stderr == b""
    assert finished.stdout.decode("utf-8").splitlines() == CONTRACT.splitlines()
    assert finished.returncode == 0


@pytest.mark.usefixtures("shop")
def test_an_input_is_answered_with_the_command_that_takes_it(capsys):
    with pytest.raises(SystemExit) as exit_:
        main(["inspect", "shop:ChargeCard", "order=7"])
    assert exit_.value.code == 2
    printed = capsys.readouterr().err
    assert printed.startswith("usage: python -m cmdx inspect ")
    assert printed.endswith(
        "unrecognized arguments: order=7. It runs nothing, so it takes no inputs. To "
        "run the task, write python -m cmdx run shop:ChargeCard order=7\n"
    )


def test_it_needs_to_be_told_a_task(capsys):
    with pytest.raises(SystemExit) as exit_:
        main(["inspect"])
    assert exit_.value.code == 2
    assert "MODULE:TASK" in capsys.readouterr().err


# -- what a task is --------------------------------------------------------------------


def test_a_task_that_awaits_says_how_it_is_run():
    class Fetch(Task[str]):
        async def work(self) -> str:
            return ""

    assert facts(Fetch)["run with"] == "aexecute, because it awaits"


def test_a_task_with_an_async_hook_says_how_it_is_run():
    class Fetch(Task[str]):
        def work(self) -> str:
            return ""

        @on_failed
        async def page(self) -> None: ...

    assert facts(Fetch)["run with"] == "aexecute, because it awaits"


def test_a_base_class_without_work_is_described_too():
    class Base(Task[None]):
        tenant: str

    assert "no work()" in facts(Base)["run with"]
    assert table(Base, "Inputs")["tenant"].given == "required"


def test_the_value_is_found_in_a_generic_ancestor():
    V = TypeVar("V")

    class Base(Task[V], Generic[V]):
        def work(self) -> V:
            raise NotImplementedError

    class Child(Base[list[int]]):
        pass

    class Grandchild(Child):
        pass

    assert facts(Child)["value"] == "list[int]"
    assert facts(Grandchild)["value"] == "list[int]"
    assert "value" not in facts(Base)


def test_deprecation_is_told_with_its_gate():
    class Old(Task[None], deprecated="warn", deprecated_unless="is_small"):
        def work(self) -> None: ...

        def is_small(self) -> bool:
            return True

    assert facts(Old)["deprecated"] == "warn unless is_small"


def test_only_the_first_paragraph_of_its_own_docstring_is_told():
    class Quiet(Task[None]):
        def work(self) -> None: ...

    assert describe(Quiet).startswith("Quiet\n\nvalue")


# -- the steps of a workflow -----------------------------------------------------------


class Reserve(Task[None]):
    def work(self) -> None: ...


class Quote(Task[int]):
    async def work(self) -> int:
        return 3


class Ship(Workflow[None]):
    steps = (Reserve,)


class Shop(Workflow[None]):
    steps = (
        Reserve,
        Ship,
        step(Reserve, map={"id": "order"}, into="stock", on_failure="continue"),
        group(Reserve, if_="is_live", continue_on_failure=True),
        parallel(
            Quote, group(Reserve, unless=True), workers=2, merge="deep", if_="is_live"
        ),
    )

    def is_live(self) -> bool:
        return True


def test_the_steps_of_a_workflow_are_listed():
    text = describe(Shop)
    _, _, steps = text.partition("\nSteps\n")

    assert (
        steps.partition("\n\n")[0]
        == """\
  step         when         how                              on failure
  Reserve                                                    stop
  Ship                                                       stop
    Reserve                                                  stop
  Reserve                   id from order, value into stock  continue
  group        if is_live
    Reserve                                                  collect, then stop
  parallel     if is_live   2 workers, merge deep
    Quote                                                    stop
    group      unless True
      Reserve                                                stop"""
    )


def test_a_workflow_with_a_step_that_awaits_says_how_it_is_run():
    class Plain(Workflow[None]):
        steps = (Reserve, Ship)

    class Asking(Workflow[None]):
        steps = (group(Ship, parallel(Reserve, Quote)),)

    class Pooled(Workflow[None]):
        steps = (parallel(Reserve, Ship, executor="asyncio"),)

    assert facts(Plain)["run with"] == "execute or aexecute"
    assert facts(Asking)["run with"] == "aexecute, because it awaits"
    assert facts(Pooled)["run with"] == "aexecute, because it awaits"


def test_a_workflow_without_steps_is_a_base_class():
    class Base(Workflow[None]):
        pass

    assert "no steps" in facts(Base)["run with"]
    assert "\nSteps\n" not in describe(Base)


def test_a_task_that_cannot_run_says_why():
    class Tell(Task[None]):
        number: int = required(validate="chekc")

        def work(self) -> None: ...

    assert "names 'chekc'" in facts(Tell)["run with"]


# -- inputs ----------------------------------------------------------------------------


class Colour(Enum):
    RED = "red"


UserId = NewType("UserId", int)


class Everything(Task[None]):
    plain: int
    text: str = "hello"
    nothing: str | None = None
    colour: Colour = Colour.RED
    moment: datetime = datetime(2026, 1, 2, tzinfo=UTC)
    pair: tuple[int, ...] = (1, 2)
    word: Literal["a", 1] = "a"
    mapping: dict[str, list[datetime]]
    user: UserId
    kind: str = required(alias="class")
    loaded: str = required(source="load")
    fallback: str = optional(default="x", source=lambda _: None)
    gated: str = required(if_="is_live", unless=lambda _: False)
    made: int = required(coerce=partial(int, base=10))
    raw: object = required(coerce=False)

    def load(self) -> str:
        return ""

    def is_live(self) -> bool:
        return True

    def work(self) -> None: ...


@pytest.mark.parametrize(
    ("name", "kind", "given", "rules"),
    [
        ("plain", "int", "required", ""),
        ("text", "str", "default 'hello'", ""),
        ("nothing", "str | None", "default None", ""),
        ("colour", "Colour", "default Colour.RED", ""),
        (
            "moment",
            "datetime",
            "default datetime.datetime(2026, 1, 2, 0, 0, tzinfo=datetime…",
            "",
        ),
        ("pair", "tuple[int, ...]", "default 1, 2", ""),
        ("word", "Literal['a', 1]", "default 'a'", ""),
        ("mapping", "dict[str, list[datetime]]", "required", ""),
        ("user", "UserId", "required", ""),
        ("class (self.kind)", "str", "required", ""),
        ("loaded", "str", "from load", ""),
        ("fallback", "str", "from a lambda, default 'x'", ""),
        ("gated", "str", "required if is_live unless a lambda", ""),
        ("made", "int", "required", "made by int"),
        ("raw", "object", "required", "unchanged"),
    ],
)
def test_an_input_is_told_by_name_type_and_how_it_is_given(name, kind, given, rules):
    row = table(Everything, "Inputs")[name]
    assert (row.type, row.given, row.rules) == (kind, given, rules)


def small(value: int) -> None: ...


class Bound:
    """A constraint in the style of annotated-types."""

    def __init__(self, **wishes: Any) -> None:
        vars(self).update(wishes)


class Group(Bound):
    __is_annotated_types_grouped_metadata__ = ()

    def __iter__(self):
        return iter((Bound(min_length=1), Bound(max_length=9)))


class Strict(Task[None]):
    present: str = required(presence=True)
    absent: str = required(absence=True)
    bounds: int = required(gt=0, ge=1, lt=9, le=8, multiple_of=2)
    sizes: str = required(min_length=1, max_length=9)
    size: str = required(length=3)
    shaped: str = required(pattern=re.compile("[a-z]+"))
    chosen: str = required(one_of={"a": 1}, none_of=["b", "c"])
    dated: datetime = required(format="%d.%m.%Y")
    checked: int = required(transform=abs, validate=[small, lambda _: None], ge=1)
    annotated: Annotated[int, Bound(ge=1, lt=9), "a note", Bound(func=small)]
    layered: Annotated[Annotated[str, re.compile("x+")], Group(), small]

    def work(self) -> None: ...


@pytest.mark.parametrize(
    ("name", "rules"),
    [
        ("present", "present"),
        ("absent", "absent"),
        ("bounds", "> 0, >= 1, < 9, <= 8, multiple of 2"),
        ("sizes", "length >= 1, length <= 9"),
        ("size", "length 3"),
        ("shaped", "pattern [a-z]+"),
        ("chosen", "one of 'a', none of 'b', 'c'"),
        ("dated", "format %d.%m.%Y"),
        ("checked", "then abs, >= 1, checked by small, checked by a lambda"),
        ("annotated", ">= 1, < 9, checked by small"),
        ("layered", "pattern x+, length >= 1, length <= 9, checked by small"),
    ],
)
def test_the_rules_of_an_input_are_told_in_short(name, rules):
    row = table(Strict, "Inputs")[name]
    assert row.rules == rules
    assert row.type in {"str", "int", "datetime"}


def test_the_fields_of_nested_classes_are_told_with_their_path():
    row = table(Deliver, "Inputs")
    assert list(row) == [
        "to",
        "to.city",
        "to.lines",
        "to.lines[].zip",
        "to.lines[].floor",
        "to.lines[].door",
        "to.lines[].door.colour",
        "to.next",
    ]
    assert row["to"].type == "Address | None"
    assert row["to.lines[].floor"].type == "int"
    assert row["to.lines[].floor"].given == "optional"
    assert row["to.lines[].floor"].rules == ">= 0"
    assert row["to.city"].given == "required"
    assert row["to.lines[].door.colour"].type == "str"
    assert row["to.lines[].door.colour"].rules == "length >= 3"


class Door(TypedDict):
    colour: Required[Annotated[str, Bound(min_length=3)]]


@dataclass
class Line:
    zip: str
    floor: Annotated[int, Bound(ge=0)] = 0
    door: Door | None = None


@attrs.frozen
class Address:
    city: str
    lines: list[Line]
    next: Address | None = None


class Deliver(Task[None]):
    to: Address | None

    def work(self) -> None: ...


@pytest.mark.parametrize("options", [{"coerce": small}, {"source": small}])
def test_fields_that_callers_need_not_give_are_not_told(options):
    class Deliver(Task[None]):
        to: Address = required(**options)

        def work(self) -> None: ...

    assert list(table(Deliver, "Inputs")) == ["to"]


def test_inherited_overridden_and_removed_inputs_are_told_as_they_are():
    class Parent(Task[None]):
        kept: int
        changed: int
        removed: int

        def work(self) -> None: ...

    class Child(Parent):
        changed: int = 3
        removed = None

    rows = table(Child, "Inputs")
    assert list(rows) == ["kept", "changed"]
    assert rows["changed"].given == "default 3"


def test_a_task_without_inputs_says_that_it_takes_any_keyword():
    class Free(Task[None]):
        def work(self) -> None: ...

    assert "Inputs\n  none declared: any keyword goes into the context" in describe(
        Free
    )


def test_a_description_over_several_lines_is_told_in_one():
    class Long(Task[None]):
        x: int = required(description="one\n   two")

        def work(self) -> None: ...

    assert table(Long, "Inputs")["x"].description == "one two"


def test_columns_are_aligned_and_lines_end_without_blanks():
    lines = describe(Everything).splitlines()
    start = lines.index("Inputs") + 1
    column = lines[start].index("given")
    rows = lines[start : start + len(Everything.inputs_schema()["properties"])]
    assert all(line[column - 2 : column] == "  " for line in rows)
    assert all(line[column] != " " for line in rows)
    assert [line for line in lines if line != line.rstrip()] == []


# -- secrets ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["password", "db_passwd", "api_key", "apikey", "access_token", "client_secret",
     "PRIVATE_KEY", "credentials", "authorization"],
)  # fmt: skip
def test_the_default_of_what_is_named_like_a_secret_is_hidden(name):
    class Login(Task[None]):
        given_text: str = optional(default="hunter2", alias=name)

        def work(self) -> None: ...

    assert "default (hidden)" in describe(Login)
    assert "hunter2" not in describe(Login)


def test_a_secret_without_a_default_has_nothing_to_hide():
    class Login(Task[None]):
        password: str | None = None
        token: str = ""
        author: str = "Ada"

        def work(self) -> None: ...

    rows = table(Login, "Inputs")
    assert rows["password"].given == "default None"
    assert rows["token"].given == "default ''"
    assert rows["author"].given == "default 'Ada'"


def test_a_secret_is_hidden_by_the_name_of_its_attribute_too():
    class Login(Task[None]):
        password: str = optional(default="hunter2", alias="p")

        def work(self) -> None: ...

    assert "hunter2" not in describe(Login)


@pytest.mark.parametrize(
    "url",
    ["postgres://me:hunter2@host/db", "https://hunter2@host", "a://b:hunter2:@c@host"],
)
def test_who_logs_in_by_a_url_is_hidden(url):
    class Connect(Task[None]):
        to: str = optional(default=url)

        def work(self) -> None: ...

    given = table(Connect, "Inputs")["to"].given
    assert "hunter2" not in given
    assert "://***@host" in given


class Config:
    def __repr__(self) -> str:
        return "Config(password='hunter2')"

    def __call__(self, *_: Any) -> Any:
        return None


@retry_on(OSError, jitter=Config(), if_=Config())
@middleware(partial(Config(), "hunter2"))
class Careful(Task[None]):
    config: Any = Config()
    nested: tuple[Any, ...] = (Config(),)
    made: int = optional(
        default=b"hunter2", coerce=partial(Config(), "hunter2"), validate=Config()
    )

    def work(self) -> None: ...


def test_objects_are_told_by_their_type_and_never_by_their_repr():
    text = describe(Careful)
    assert "hunter2" not in text
    rows = table(Careful, "Inputs")
    assert rows["config"].given == "default a Config"
    assert rows["nested"].given == "default a Config"
    assert rows["made"].given == "default a bytes"
    assert rows["made"].rules == "made by Config, checked by Config"


# -- outputs, hooks, middlewares, retries ----------------------------------------------


def test_an_output_says_when_it_is_set():
    class Measure(Task[None]):
        always: int = output()
        sometimes: list[float] = output(if_="is_live", description="in metres")

        def is_live(self) -> bool:
            return True

        def work(self) -> None: ...

    rows = table(Measure, "Outputs")
    assert rows["always"].set == "always"
    assert rows["sometimes"].cells == {
        "name": "sometimes",
        "type": "list[float]",
        "set": "if is_live",
        "description": "in metres",
    }


EVENTS = [
    "before_execution",
    "before_validation",
    "around_execution",
    "after_execution",
    "on_complete",
    "on_interrupted",
    "on_success",
    "on_skipped",
    "on_failed",
    "on_ok",
    "on_ko",
]


def test_hooks_are_told_in_the_order_they_happen():
    def hook(self): ...

    body = {f"do_{event}": getattr(cmdx, event)(hook) for event in reversed(EVENTS)}
    task = type("Hooked", (Task,), {**body, "work": hook, "rollback": hook})
    rows = table(task, "Hooks")
    assert list(rows) == [*EVENTS, "rollback"]
    assert [row.method for row in rows.values()] == [
        *(f"do_{event}" for event in EVENTS),
        "rollback",
    ]


def test_a_hook_is_told_once_for_each_occasion_and_not_when_removed():
    class Parent(Task[None]):
        def work(self) -> None: ...

        @on_failed
        def page(self) -> None: ...

        @cmdx.on_success(if_=False)
        @cmdx.on_skipped(unless="is_live")
        def note(self) -> None: ...

        def is_live(self) -> bool:
            return True

    class Child(Parent):
        page = None

    assert list(table(Parent, "Hooks")) == ["on_success", "on_skipped", "on_failed"]
    rows = table(Child, "Hooks")
    assert list(rows) == ["on_success", "on_skipped"]
    assert rows["on_success"].when == "if False"
    assert rows["on_skipped"].when == "unless is_live"


def test_middlewares_are_told_the_outermost_first():
    def audit(_):
        yield

    def timed(_):
        yield

    def traced(_):
        yield

    @middleware(audit, if_="is_live")
    class Parent(Task[None]):
        def work(self) -> None: ...

        def is_live(self) -> bool:
            return True

    @middleware(timed, traced)
    class Child(Parent):
        pass

    rows = table(Child, "Middlewares")
    assert list(rows) == ["audit", "timed", "traced"]
    assert rows["audit"].when == "if is_live"
    assert rows["timed"].when == ""


def test_the_rules_of_a_retry_policy_are_told_in_the_order_they_are_asked():
    @retry_on(TimeoutError, limit=2)
    class Parent(Task[None]):
        def work(self) -> None: ...

        def transient(self) -> bool:
            return True

    @retry_on(OSError, rule="disk", delay=1, max_delay=30, if_="transient")
    @retry_on(ConnectionError, jitter=lambda attempt: attempt)
    class Child(Parent):
        pass

    disk, unnamed = table(Child, "Retries").values()
    assert disk.cells == {
        "rule": "disk",
        "errors": "OSError",
        "limit": "3",
        "delay": "1 s",
        "jitter": "",
        "max_delay": "30 s",
        "when": "if transient",
    }
    assert unnamed.rule == ""
    assert unnamed.errors == "TimeoutError, ConnectionError"
    assert (unnamed.limit, unnamed.delay) == ("2", "0.5 s")
    assert unnamed.jitter == "a lambda"


def test_what_else_bounds_the_retries_is_told():
    @retry_on(
        OSError, deadline=2.5, budget=cmdx.RetryBudget(), guided=True, nested="once"
    )
    class Bounded(Task[None]):
        def work(self) -> None: ...

    (row,) = table(Bounded, "Retries").values()
    assert row.deadline == "2.5 s"
    assert (row.budget, row.guided, row.nested) == ("shared", "yes", "once")


def test_options_without_errors_are_no_retries():
    @retry_on(limit=9)
    class Hopeful(Task[None]):
        def work(self) -> None: ...

    with pytest.warns(UserWarning, match="lists no exceptions"):
        described = describe(Hopeful)
    assert described.endswith("Retries\n  none: a failure is final")


def test_describing_a_task_runs_nothing():
    def refuse(*_: Any) -> Any:
        raise AssertionError

    class Idle(Task[None]):
        x: list[int] = optional(factory=refuse, source=refuse, validate=refuse)

        def work(self) -> None:
            refuse()

    assert table(Idle, "Inputs")["x"].given == "from refuse, default by refuse"


def test_a_type_that_is_not_there_yet_is_told_by_its_name():
    class Early(Task[None]):
        x: Nowhere  # noqa: F821
        y: list[int] | None = None

        def work(self) -> None: ...

    assert table(Early, "Inputs")["x"].type == "Nowhere"
