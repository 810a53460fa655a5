"""What stored data calls a task, and which class it leads to."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from cmdx import DefinitionError, Task
from cmdx.wire import (
    UnknownTaskError,
    WireError,
    dump_invocation,
    dump_result,
    load_invocation,
    load_result,
)


class Ship(Task[None]):
    order_id: int

    def work(self) -> None: ...


class Outer:
    class Inner(Task[None]):
        def work(self) -> None: ...


NOT_A_TASK = Outer
called = []


class Trap:
    def __getattr__(self, name):
        called.append(name)

    @property
    def Task(self):  # noqa: N802 -- the name of a class
        called.append("Task")


trap = Trap()


def stored(name, module=__name__, **inputs):
    return {"task": name, "module": module, "inputs": inputs}


# -- names --------------------------------------------------------------------------


def test_a_task_is_called_by_its_module_and_name():
    data = dump_invocation(Ship(order_id=7))

    assert data == stored(f"{__name__}:Ship", order_id=7)


def test_a_nested_class_is_called_by_its_qualified_name():
    assert dump_invocation(Outer.Inner())["task"] == f"{__name__}:Outer.Inner"


def test_a_class_may_choose_its_name():
    class Charge(Task[None], name="test.names.charge"):
        def work(self) -> None: ...

    assert dump_invocation(Charge()) == stored("test.names.charge")


def test_a_named_class_is_found_wherever_it_is():
    class Move(Task[None], name="test.names.move"):
        def work(self) -> None: ...

    assert type(load_invocation(stored("test.names.move", "gone"))) is Move


def test_a_name_is_not_inherited():
    class Parent(Task[None], name="test.names.parent"):
        def work(self) -> None: ...

    class Child(Parent, name="test.names.child"):
        pass

    assert dump_invocation(Child())["task"] == "test.names.child"


def test_two_classes_cannot_have_one_name():
    class First(Task[None], name="test.names.first"):
        def work(self) -> None: ...

    with pytest.raises(DefinitionError, match=r"First already has the name"):

        class Second(Task[None], name="test.names.first"):
            def work(self) -> None: ...

    assert First is not None


def test_a_class_that_is_defined_again_takes_its_name_over():
    def define():
        class Again(Task[None], name="test.names.again"):
            def work(self) -> None: ...

        return Again

    older, newer = define(), define()

    assert type(load_invocation(stored("test.names.again"))) is newer
    assert older is not newer


@pytest.mark.parametrize("name", ["", "a b", "a:b", "a\n", 7, None])
def test_a_name_is_text_without_spaces_and_colons(name):
    with pytest.raises(DefinitionError, match="name must be text"):

        class Odd(Task[None], name=name):
            def work(self) -> None: ...


def test_a_local_class_needs_a_name():
    class Local(Task[None]):
        def work(self) -> None: ...

    with pytest.raises(WireError, match=r"Local is defined in a function") as refusal:
        dump_invocation(Local())
    assert str(refusal.value).endswith(
        'name it, name="...", and define it in each process that runs it.'
    )


def test_a_class_that_another_one_has_replaced_is_refused(monkeypatch):
    older = Ship(order_id=7)
    monkeypatch.setitem(globals(), "Ship", Outer)

    with pytest.raises(WireError, match="is not this class but another object"):
        dump_invocation(older)


# -- the main program ---------------------------------------------------------------

PROGRAM = """
import json
from cmdx import Task
from cmdx.wire import dump_invocation, load_invocation

class Greet(Task[str]):
    def work(self):
        return "hello"

data = dump_invocation(Greet())
assert type(load_invocation(data)) is Greet
print(json.dumps(data))
"""


def run_program(*command, folder, typed=""):
    return subprocess.run(  # noqa: S603
        [sys.executable, *command],
        cwd=folder,
        input=typed,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_class_of_the_main_program_is_called_by_its_importable_module(tmp_path):
    (tmp_path / "jobs.py").write_text(PROGRAM)

    done = run_program("jobs.py", folder=tmp_path)

    assert json.loads(done.stdout) == stored("jobs:Greet", "jobs")


def test_a_class_of_a_program_run_as_a_module_is_called_by_it(tmp_path):
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "__init__.py").touch()
    (tmp_path / "shop" / "jobs.py").write_text(PROGRAM)

    done = run_program("-m", "shop.jobs", folder=tmp_path)

    assert json.loads(done.stdout) == stored("shop.jobs:Greet", "shop.jobs")


def test_a_class_of_a_program_that_cannot_be_imported_is_refused(tmp_path):
    (tmp_path / "not-a-module.py").write_text(PROGRAM)

    done = run_program("not-a-module.py", folder=tmp_path)

    assert "Move it to a module of its own, and import it from there." in done.stderr


def test_a_class_of_a_program_that_ends_in_a_shell_is_called_by_its_module(tmp_path):
    (tmp_path / "jobs.py").write_text(PROGRAM)

    done = run_program("-i", "jobs.py", folder=tmp_path, typed=PROGRAM[1:])

    assert done.stdout.splitlines() == [json.dumps(stored("jobs:Greet", "jobs"))] * 2


def test_a_class_that_a_program_makes_without_a_statement_is_not_typed(tmp_path):
    base, show = PROGRAM.split("data = ")
    make = 'Greet = type("Greet", (Base,), {})'
    (tmp_path / "jobs.py").write_text(base.replace("Greet", "Base") + make)

    done = run_program("-i", "jobs.py", folder=tmp_path, typed=f"data = {show}")

    assert done.stdout.splitlines() == [json.dumps(stored("jobs:Greet", "jobs"))]


SHELLS = [(), ("jobs.py",), ("-m", "jobs"), ("shop/jobs.py",), ("-m", "shop.jobs")]


@pytest.mark.parametrize("command", SHELLS)
def test_a_class_that_is_typed_into_a_shell_is_refused(tmp_path, command):
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "__init__.py").touch()
    for path in ("jobs.py", "shop/jobs.py"):
        (tmp_path / path).write_text(PROGRAM.replace("Greet", "Greeting"))

    done = run_program("-i", *command, folder=tmp_path, typed=PROGRAM[1:])

    assert "Greet is defined in the main program" in done.stderr
    assert "Move it to a module of its own, and import it from there." in done.stderr


@pytest.mark.parametrize("flags", [(), ("-i",)])
@pytest.mark.parametrize("below", ["", "shop"])
def test_a_program_in_a_package_is_told_to_start_as_a_module(tmp_path, flags, below):
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "__init__.py").touch()
    (tmp_path / "shop" / "jobs.py").write_text(PROGRAM)
    path = "jobs.py" if below else "shop/jobs.py"

    done = run_program(*flags, path, folder=tmp_path / below)

    assert f"Start it as `python -m shop.jobs` in the folder {tmp_path}." in done.stderr


NAMED_PROGRAM = """
from cmdx import Task
from cmdx.operations import Ledger

class Greet(Task[str], name="greet"):
    def work(self):
        return "hello"

session = Ledger("app.db").session("shop")
print(session.run(Greet(), id="a").value)
print(session.run(Greet(), id="a").value)
"""


def test_the_result_of_a_named_class_is_found_whatever_its_program_is_called(tmp_path):
    (tmp_path / "not-a-module.py").write_text(NAMED_PROGRAM)

    done = [run_program("not-a-module.py", folder=tmp_path) for _ in range(2)]

    assert [program.stdout.split() for program in done] == [["hello", "hello"]] * 2


# -- finding ------------------------------------------------------------------------


@pytest.fixture
def shop(tmp_path, monkeypatch):
    """A package that is not imported yet, with one task; no two tests share one."""
    package = tmp_path / tmp_path.name
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "billing.py").write_text(
        "from cmdx import Task\nclass Charge(Task[None]):\n    def work(self): ...\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    return package.name


def test_a_listed_package_is_imported(shop):
    data = stored(f"{shop}.billing:Charge")

    assert type(load_invocation(data, tasks=(shop,))).__name__ == "Charge"


def test_a_package_without_tasks_that_is_not_listed_is_not_imported(shop):
    data = stored(f"{shop}.billing:Charge")

    with pytest.raises(UnknownTaskError, match=rf"Queue\(\.\.\., tasks=\('{shop}',\)"):
        load_invocation(data, tasks=(shop[:-1], "billing"))
    assert shop not in sys.modules


def test_what_is_listed_is_named_if_it_has_not_the_package(shop):
    data = stored(f"{shop}.billing:Charge")

    with pytest.raises(UnknownTaskError, match=r"tasks= lists 'biling', 'app' now\."):
        load_invocation(data, tasks=("biling", "app"))
    with pytest.raises(UnknownTaskError) as caught:
        load_invocation(data)
    assert "lists" not in str(caught.value)


def test_a_package_that_has_a_task_may_have_more(shop, monkeypatch):
    monkeypatch.setattr(Ship, "__module__", f"{shop}.shipping")
    data = stored(f"{shop}.billing:Charge")

    assert type(load_invocation(data)).__name__ == "Charge"


def test_a_module_that_is_gone_is_named(shop):
    data = stored(f"{shop}.gone:Charge")

    with pytest.raises(UnknownTaskError, match=r"gone cannot be imported") as refusal:
        load_invocation(data, tasks=(shop,))
    assert f"Make `import {shop}.gone` work first, keep its old" in str(refusal.value)


@pytest.mark.parametrize(
    "source", ["raise RuntimeError('no database.')", "import not_there"]
)
def test_a_module_that_cannot_be_imported_is_to_be_mended(shop, tmp_path, source):
    (tmp_path / shop / "broken.py").write_text(source)
    data = stored(f"{shop}.broken:Charge")

    with pytest.raises(UnknownTaskError, match="cannot be imported") as refusal:
        load_invocation(data, tasks=(shop,))
    assert str(refusal.value).endswith(f". Make `import {shop}.broken` work first.")


def test_a_module_that_raises_when_it_is_imported_is_named(shop, tmp_path):
    (tmp_path / shop / "broken.py").write_text("raise RuntimeError('no database.')")
    data = stored(f"{shop}.broken:Charge")

    with pytest.raises(UnknownTaskError, match=r"RuntimeError: no database\. Make"):
        load_invocation(data, tasks=(shop,))


def test_a_module_that_exits_when_it_is_imported_is_named(shop, tmp_path):
    (tmp_path / shop / "script.py").write_text("raise SystemExit(5)")
    data = stored(f"{shop}.script:Charge")

    with pytest.raises(UnknownTaskError, match=r"cannot be imported: SystemExit: 5\."):
        load_invocation(data, tasks=(shop,))


def test_a_result_whose_module_exits_when_it_is_imported_is_read(shop, tmp_path):
    (tmp_path / shop / "script.py").write_text("raise SystemExit(5)")
    data = dump_result(Ship.execute())
    data |= {"task": f"{shop}.script:Charge", "module": f"{shop}.script"}

    assert "order_id is required" in load_result(data, tasks=(shop,)).reason


def test_a_name_decides_over_the_module_beside_it(shop):
    data = stored(f"{__name__}:Ship", f"{shop}.billing", order_id=7)

    assert type(load_invocation(data, tasks=(shop,))) is Ship
    assert shop not in sys.modules


@pytest.mark.parametrize(
    "name", ["NOT_A_TASK", "trap", "Outer", "stored", "trap.Task", "Trap.Task", "Gone"]
)
def test_a_name_that_is_no_task_is_refused(name):
    called.clear()  # pytest looks for tests everywhere

    with pytest.raises(UnknownTaskError, match="cannot be used"):
        load_invocation(stored(f"{__name__}:{name}"))
    assert called == []


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("os:system", "os"),
        ("antigravity:fly", "antigravity"),
        ("..:x", ".."),
        (":", ""),
        ("", ""),
        ("x:", "x"),
        ("unknown", "antigravity"),
        ("unknown", ""),
    ],
)
def test_a_foreign_module_is_not_imported(name, module):
    with pytest.raises(UnknownTaskError, match="cannot be used"):
        load_invocation(stored(name, module))
    assert "antigravity" not in sys.modules


def test_stored_data_does_not_reach_through_modules_of_a_module():
    with pytest.raises(UnknownTaskError):
        load_invocation(stored(f"{__name__}:sys.modules"))
