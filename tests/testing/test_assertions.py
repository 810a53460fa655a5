from __future__ import annotations

import re

import pytest

from cmdx import Task, Workflow, output, retry_on
from cmdx.testing import assert_failed, assert_skipped, assert_success, instant


class Returns(Task[object]):
    def work(self) -> object:
        self.metadata.update(code=1, more=2)
        return self.context.value


class Skips(Task[None]):
    def work(self) -> None:
        self.skip("nothing to do", code=1)


class Fails(Task[None]):
    def work(self) -> None:
        self.errors.add("card", "is expired")
        self.fail("no card", code=1)


@retry_on(ConnectionError, limit=2, delay=60, rule="network")
class Raises(Task[None]):
    def work(self) -> None:
        raise ConnectionError("still down")


class Passes(Task[None]):
    def work(self) -> None:
        self.throw(Raises.execute())


ERROR = ConnectionError("this very one")


class RaisesOne(Task[None]):
    def work(self) -> None:
        raise ERROR


class Reserve(Task[None]):
    number: int = output()
    shelf: str = output(if_=False)

    def work(self) -> None:
        self.number = 7
        self.context.update(items=["teapot", "cup"], note="s3cret")

    def rollback(self) -> None:
        """Release the goods."""


class Pack(Reserve):
    pass


class Checkout(Workflow[None]):
    steps = (Reserve, Pack, Fails)


@pytest.fixture(autouse=True)
def no_waiting():
    with instant():
        yield


def difference(check, result, **expected):
    with pytest.raises(AssertionError) as caught:
        check(result, **expected)
    return str(caught.value)


@pytest.mark.parametrize(
    ("check", "task", "expected"),
    [
        (assert_success, Returns, {}),
        (assert_success, Returns, {"value": 3, "reason": None, "retries": 0}),
        (assert_success, Returns, {"metadata": {"code": 1}}),
        (assert_success, Returns, {"metadata": {}, "errors": {}}),
        (assert_success, Returns, {"stopped": "success"}),
        (assert_skipped, Skips, {}),
        (assert_skipped, Skips, {"reason": "nothing to do", "stopped": "halted"}),
        (assert_failed, Fails, {}),
        (assert_failed, Fails, {"reason": re.compile("^no"), "cause": None}),
        (assert_failed, Fails, {"errors": {"card": ["is expired"]}}),
        (assert_failed, Fails, {"errors": {"card": ("is expired",)}}),
        (assert_failed, Raises, {"cause": OSError, "retries": 2}),
        (assert_failed, RaisesOne, {"cause": ERROR}),
        (assert_success, Reserve, {"context": {"items": ["teapot", "cup"]}}),
        (assert_success, Reserve, {"context": {}, "outputs": {}}),
        (assert_success, Reserve, {"outputs": {"number": 7}, "rolled_back": False}),
        (assert_success, Reserve, {"duration": 0, "compensated": []}),
        (assert_skipped, Skips, {"rolled_back": False, "context": {"value": 3}}),
        (assert_failed, Checkout, {"compensated": [Pack, Reserve]}),
        (assert_failed, Checkout, {"compensated": (Pack, Reserve)}),
        (assert_failed, Raises, {"duration": 120}),
        (assert_failed, Raises, {"duration": 120.00000001}),
        (assert_failed, Raises, {"duration": (100, 120)}),
        (assert_failed, Raises, {"duration": (120, float("inf"))}),
    ],
)
def test_a_result_that_is_as_expected_is_returned(check, task, expected):
    result = task.execute(value=3)

    assert check(result, **expected) is result


@pytest.mark.parametrize(
    ("check", "task", "head", "expected", "found"),
    [
        (assert_success, Skips, "was skipped", "success", "skipped"),
        (assert_success, Fails, "failed", "success", "failed"),
        (assert_skipped, Returns, "succeeded", "skipped", "success"),
        (assert_skipped, Fails, "failed", "skipped", "failed"),
        (assert_failed, Returns, "succeeded", "failed", "success"),
        (assert_failed, Skips, "was skipped", "failed", "skipped"),
    ],
)
def test_another_status_is_shown(check, task, head, expected, found):
    shown = difference(check, task.execute(value=3))

    assert shown.startswith(f"{task.__name__} {head}, but it should have ")
    assert f"\n- status      {expected}\n+ status      {found}\n" in shown


@pytest.mark.parametrize(
    ("check", "task", "expected", "lines"),
    [
        (assert_success, Returns, {"value": 4}, ["- value       4", "+ value       3"]),
        (
            assert_success,
            Returns,
            {"value": "3"},
            ["- value       '3'", "+ value       3"],
        ),
        (
            assert_success,
            Skips,
            {"value": None},
            ["- value       None", "+ value       (no value)"],
        ),
        (
            assert_skipped,
            Skips,
            {"reason": "nothing"},
            ["- reason      nothing", "+ reason      nothing to do"],
        ),
        (
            assert_success,
            Returns,
            {"reason": re.compile("x")},
            ["- reason      (matching) x", "+ reason      (none)"],
        ),
        (
            assert_failed,
            Fails,
            {"errors": {}},
            ["- errors      {}", "+ errors      {'card': ['is expired']}"],
        ),
        (
            assert_failed,
            Fails,
            {"metadata": {"code": 2}},
            ["- metadata    {'code': 2}", "+ metadata    {'code': 1}"],
        ),
        (
            assert_failed,
            Fails,
            {"cause": KeyError},
            ["- cause       KeyError", "+ cause       (none)"],
        ),
        (
            assert_failed,
            RaisesOne,
            {"cause": ConnectionError("another")},
            [
                "- cause       ConnectionError: another",
                "+ cause       ConnectionError: this very one",
            ],
        ),
        (assert_failed, Raises, {"retries": 3}, ["- retries     3", "+ retries     2"]),
        (
            assert_failed,
            Raises,
            {"stopped": "gate"},
            ["- stopped     gate", "+ stopped     exhausted"],
        ),
    ],
)
def test_what_differs_is_shown(check, task, expected, lines):
    shown = difference(check, task.execute(value=3), **expected).splitlines()

    assert [line for line in shown if line in lines] == lines


def rolled_back_step():
    return Checkout.execute().chain[1]


@pytest.mark.parametrize(
    ("check", "result", "expected", "lines"),
    [
        (
            assert_success,
            Reserve.execute,
            {"context": {"note": "other", "missing": 1}},
            [
                "- context     {'missing': 1, 'note': 'other'}",
                "+ context     {'note': 's3cret'}",
            ],
        ),
        (
            assert_success,
            Reserve.execute,
            {"outputs": {"number": 8, "shelf": "A"}},
            [
                "- outputs     {'number': 8, 'shelf': 'A'}",
                "+ outputs     {'number': 7}",
            ],
        ),
        (
            assert_success,
            Reserve.execute,
            {"rolled_back": True},
            ["- rolled_back True", "+ rolled_back False"],
        ),
        (
            assert_success,
            rolled_back_step,
            {"rolled_back": False},
            ["- rolled_back False", "+ rolled_back True"],
        ),
        (
            assert_failed,
            Checkout.execute,
            {"compensated": [Reserve, Pack]},
            ["- compensated Reserve, Pack", "+ compensated Pack, Reserve"],
        ),
        (
            assert_failed,
            Fails.execute,
            {"compensated": [Reserve]},
            ["- compensated Reserve", "+ compensated (none)"],
        ),
        (
            assert_failed,
            Raises.execute,
            {"duration": 121},
            ["- duration    121 s", "+ duration    120 s"],
        ),
        (
            assert_failed,
            Raises.execute,
            {"duration": (0.5, 60)},
            ["- duration    0.5 s to 60 s", "+ duration    120 s"],
        ),
        (
            assert_failed,
            Raises.execute,
            {"duration": (120.5, 180)},
            ["- duration    120.5 s to 180 s", "+ duration    120 s"],
        ),
    ],
)
def test_what_differs_in_the_rest_is_shown(check, result, expected, lines):
    shown = difference(check, result(), **expected).splitlines()

    assert [line for line in shown if line[:1] in {"-", "+"}] == lines


def test_of_the_context_only_what_was_expected_is_shown():
    shown = difference(assert_success, Reserve.execute(), context={"items": []})

    assert "s3cret" not in shown


def test_large_contexts_are_compared_line_by_line():
    items = {f"key {number}": "x" * 20 for number in range(9)}
    result = Returns.execute(value=0, items=items | {"key 4": "y" * 20})

    shown = difference(assert_success, result, context={"items": items})

    changed = [line for line in shown.splitlines() if line[0:1] in {"-", "+"}]
    assert [line.split()[-1] for line in changed] == [
        f"'{'x' * 20}',",
        f"'{'y' * 20}',",
    ]


@pytest.mark.parametrize(
    ("expected", "hint"),
    [
        (
            {"outputs": {"nubmer": 7}},
            "declares no output 'nubmer'; did you mean 'number'",
        ),
        ({"outputs": {"items": []}}, "For other values use context="),
        ({"compensated": Pack}, "a list of task classes"),
    ],
)
def test_what_cannot_be_expected_of_a_task_is_refused(expected, hint):
    with pytest.raises(TypeError, match=hint):
        assert_success(Reserve.execute(), **expected)


def test_values_that_look_the_same_are_distinguished():
    class Same:
        def __repr__(self) -> str:
            return "same"

    class Other(Same):
        pass

    shown = difference(assert_success, Returns.execute(value=Same()), value=Other())

    assert re.search(r"- value       same \(.*Other, 0x\w+\)", shown)
    assert re.search(r"\+ value       same \(.*Same, 0x\w+\)", shown)


def test_what_does_not_differ_is_shown_too():
    shown = difference(assert_success, Fails.execute())

    assert "\n  reason      no card\n" in shown
    assert "\n  errors      {'card': ['is expired']}\n" in shown


def test_large_values_are_compared_line_by_line():
    before = {f"key {number}": "x" * 20 for number in range(9)}
    after = before | {"key 4": "y" * 20}

    shown = difference(assert_success, Returns.execute(value=after), value=before)

    changed = [line for line in shown.splitlines() if line[0:1] in {"-", "+"}]
    assert [line.split() for line in changed] == [
        ["-", "'key", "4':", f"'{'x' * 20}',"],
        ["+", "'key", "4':", f"'{'y' * 20}',"],
    ]


def test_the_attempts_are_shown():
    result = Raises.execute()
    first, *others = str(result.attempts).splitlines()

    shown = difference(assert_success, result)

    lines = [f"  attempts    {first}", *(f"              {line}" for line in others)]
    assert len(lines) == 3
    assert "\n".join(lines) in shown


def test_one_attempt_is_shown_with_why_it_was_the_last():
    shown = difference(assert_success, Fails.execute())

    assert "\n  attempts    1, stopped: halted\n" in shown


def test_very_many_attempts_are_counted():
    @retry_on(ConnectionError, limit=99, delay=0)
    class Stubborn(Raises):
        pass

    @retry_on(ConnectionError, rule="network", limit=99)
    class Tireless(Stubborn):
        pass

    shown = difference(assert_success, Tireless.execute())

    lines = shown.partition("  attempts    ")[2].partition("\n  chain")[0].splitlines()
    assert [line.split()[0] for line in lines] == [*map(str, range(11)), "…", "99"]
    assert "… 88 more" in shown


def test_a_run_without_attempts_is_shown_as_such():
    class Needy(Task[None]):
        name: str

        def work(self) -> None: ...

    shown = difference(assert_success, Needy.execute({}))

    assert "\n  attempts    none\n" in shown


def test_the_chain_is_shown():
    shown = difference(assert_success, Passes.execute())

    lines = shown.splitlines()[-2:]
    assert lines[0].startswith("  chain       ✗ Passes ")
    assert lines[1].startswith("              └─ ✗ Raises ")


def test_the_exception_behind_the_failure_is_shown_with_its_traceback():
    result = Passes.execute()

    with pytest.raises(AssertionError) as caught:
        assert_success(result)

    assert isinstance(caught.value.__cause__, ConnectionError)
    assert caught.value.__cause__.__traceback__ is not None


def test_the_difference_can_be_shown_while_the_task_is_running():
    class Checks(Task[str]):
        def work(self) -> str:
            return difference(assert_success, Skips.execute())

    assert "○ Skips" in Checks.execute().value


@pytest.mark.parametrize(
    ("check", "task", "name", "hint"),
    [
        (assert_success, Returns, "vlaue", "did you mean 'value'"),
        (assert_skipped, Skips, "value", "Valid keywords: compensated, context"),
        (assert_failed, Fails, "causes", "did you mean 'cause'"),
    ],
)
def test_what_cannot_be_expected_is_refused(check, task, name, hint):
    with pytest.raises(TypeError, match=hint):
        check(task.execute(value=3), **{name: 1})


def test_what_is_no_result_is_refused():
    run = Returns.aexecute(value=3)
    with pytest.raises(TypeError, match="awaiting aexecute"):
        assert_success(run)
    run.close()


def test_a_value_that_cannot_be_shown_is_shown_by_its_class():
    class Wordless:
        def __repr__(self):
            raise ZeroDivisionError("no words")

    text = difference(assert_success, Returns.execute(value=[Wordless()]), value=[1])

    assert "- value       [1]" in text
    assert f"+ value       [<{Wordless.__qualname__}>]" in text
