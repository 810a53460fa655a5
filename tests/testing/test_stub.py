from __future__ import annotations

import asyncio
from contextvars import Context
from threading import Barrier, Thread

import pytest

from cmdx import (
    Outcome,
    Status,
    Task,
    after_execution,
    before_execution,
    middleware,
    on_success,
    output,
    required,
    retry_on,
)
from cmdx.testing import recorded, stub
from cmdx.workflow.workflow import Workflow


class MustNotRun(BaseException):
    pass


class SendMail(Task[str]):
    def work(self) -> str:
        raise MustNotRun


class Register(Task[str]):
    def work(self) -> str:
        sent = SendMail.execute(to="ada")
        self.throw(sent)
        return sent.value_or("no mail")


class Real(Task[str]):
    def work(self) -> str:
        return "real"


def test_a_stub_gives_a_value():
    with stub(SendMail, "sent"):
        result = SendMail.execute()

    assert (result.success, result.value, result.reason) == (True, "sent", None)
    assert result.stopped is None


def test_without_an_outcome_the_value_is_none():
    with stub(SendMail):
        assert SendMail.execute().value is None


@pytest.mark.parametrize("value", [0, "", [], Real, Status.FAILED, print])
def test_any_value_can_be_given(value):
    with stub(SendMail, value):
        assert SendMail.execute().value is value


def test_a_stub_skips():
    with stub(SendMail, skipped="nobody there", metadata={"code": 404}):
        result = SendMail.execute()

    assert (result.status, result.reason) == (Status.SKIPPED, "nobody there")
    assert result.metadata == {"code": 404}


def test_a_stub_fails():
    with stub(SendMail, failed="mailbox full", metadata={"code": 552}):
        result = Register.execute()

    assert result.reason == "mailbox full"
    assert result.caused_failure.task is SendMail
    assert result.caused_failure.metadata == {"code": 552}
    assert [run.task for run in result.chain] == [Register, SendMail]


def test_a_stub_raises():
    error = TimeoutError("too slow")
    with stub(SendMail, error):
        result = SendMail.execute()
        with pytest.raises(TimeoutError) as raised:
            SendMail.execute_or_raise()

    assert result.cause is error
    assert raised.value is error
    assert result.reason == "[TimeoutError] too slow"


def test_a_stub_raises_an_exception_of_a_class():
    with stub(SendMail, TimeoutError):
        first, second = SendMail.execute(), SendMail.execute()

    assert isinstance(first.cause, TimeoutError)
    assert first.cause is not second.cause


def test_an_interrupt_leaves_a_stub_as_it_would_leave_a_task():
    with stub(SendMail, KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        SendMail.execute()


@pytest.mark.parametrize("status", list(Status))
def test_a_stub_takes_an_outcome(status):
    with stub(SendMail, Outcome(status, "so it is", {"a": 1})):
        result = SendMail.execute()

    assert (result.status, result.reason) == (status, "so it is")
    assert result.metadata == {"a": 1}


def test_a_stub_repeats_a_result():
    class Check(Task[int]):
        checked: bool = output()

        def work(self) -> int:
            self.checked = True
            self.metadata["seen"] = 3
            return 7

    before = Check.execute()
    with stub(SendMail, before):
        result = SendMail.execute()

    assert (result.value, result.metadata) == (7, {"seen": 3})
    assert result.context.checked is True


def test_a_stub_repeats_a_failed_result_with_its_errors():
    class Check(Task[None]):
        age: int = required()

        def work(self) -> None: ...

    before = Check.execute({"age": "old"})
    with stub(SendMail, before):
        result = SendMail.execute()

    assert result.errors.to_dict() == before.errors.to_dict() != {}
    assert (result.failed, result.reason) == (True, before.reason)


def test_a_stub_repeats_a_result_whose_work_raised():
    class Broken(Task[None]):
        def work(self) -> None:
            raise KeyError("a")

    before = Broken.execute()
    with stub(SendMail, before):
        result = SendMail.execute()

    assert result.cause is before.cause
    assert result.reason == before.reason


def test_a_stub_repeats_whose_failure_it_was():
    with stub(SendMail, failed="full"):
        before = Register.execute()
    with stub(Real, before):
        result = Real.execute()

    assert result.caused_failure.task is SendMail


def test_a_stub_leaves_outputs_for_the_next_step():
    class Find(Task[None]):
        user: str = output()

        def work(self) -> None:
            raise MustNotRun

    class Greet(Task[str]):
        user: str = required()

        def work(self) -> str:
            return f"hello {self.user}"

    class Welcome(Workflow[str]):
        steps = (Find, Greet)

    with stub(Find, outputs={"user": "Ada"}):
        assert Welcome.execute().value == "hello Ada"


def test_nothing_of_a_stubbed_task_is_run():
    touched = []

    def around(_):
        touched.append("middleware")
        yield

    @middleware(around)
    @retry_on(ConnectionError, limit=3, delay=0)
    class Busy(Task[None], correlation_id=lambda: touched.append("xid") or "x"):
        number: int = required(source=lambda _: touched.append("source"))
        found: int = output()

        @before_execution
        @after_execution
        @on_success
        def hook(self) -> None:
            touched.append("hook")

        def work(self) -> None:
            touched.append("work")

        def rollback(self) -> None:
            touched.append("rollback")

    with stub(Busy, 3):
        assert Busy.execute().value == 3
    with stub(Busy, ConnectionError):
        result = Busy.execute()

    assert touched == []
    assert (result.retries, result.rolled_back) == (0, False)


def test_a_stubbed_step_is_not_rolled_back():
    undone = []

    class Pay(Task[None]):
        def work(self) -> None: ...

        def rollback(self) -> None:
            undone.append("pay")

    class Ship(Task[None]):
        def work(self) -> None:
            self.fail("no parcels")

    class Order(Workflow[None]):
        steps = (Pay, Ship)

    with stub(Pay):
        assert Order.execute().failed
    assert undone == []
    Order.execute()
    assert undone == ["pay"]


def test_a_whole_workflow_can_be_stubbed():
    class Inner(Workflow[str]):
        steps = (SendMail,)

    class Whole(Workflow[str]):
        steps = (Inner, Real)

    with stub(Inner, "done"):
        result = Whole.execute()

    assert [run.task for run in result.chain] == [Whole, Inner, Real]


def test_undeclared_inputs_are_still_refused():
    class Named(Task[None]):
        name: str = required()

        def work(self) -> None: ...

    with stub(Named), pytest.raises(TypeError, match="did you mean 'name'"):
        Named.execute(nmae="Ada")


def test_a_stub_knows_what_it_was_run_with():
    with stub(SendMail, "sent") as mail:
        assert mail.calls == []
        Register.execute()
        SendMail.execute({"to": "bob"}).context.to = "eve"

    assert mail.calls == [{"to": "ada"}, {"to": "bob"}]
    assert repr(mail) == "<Stub of SendMail, run 2 times>"


def test_a_stubbed_run_is_announced():
    with stub(SendMail, "sent"), recorded() as recording:
        SendMail.execute()

    assert [sent.name for sent in recording.sent(task=SendMail)] == [
        "task_started",
        "task_executed",
    ]


def test_an_awaited_task_can_be_stubbed():
    class Fetch(Task[str]):
        async def work(self) -> str:
            raise MustNotRun

    async def main():
        with stub(Fetch, "page"):
            return await Fetch.aexecute(), await Fetch().arun()

    assert [result.value for result in asyncio.run(main())] == ["page", "page"]


def test_a_stubbed_task_that_awaits_is_still_refused_by_execute():
    class Fetch(Task[str]):
        async def work(self) -> str:
            return "page"

    class Both(Workflow[None]):
        steps = (Real, Fetch)

    with stub(Fetch, "stub"):
        with pytest.raises(TypeError, match="aexecute"):
            Fetch.execute()
        with pytest.raises(TypeError, match="aexecute"):
            Both.execute()
    assert asyncio.run(Both.aexecute()).value == "page"


def test_invocations_are_stubbed_when_they_are_run():
    invocation = SendMail(to="ada")
    with stub(SendMail, "sent"):
        assert invocation.run().value == "sent"


def test_the_task_runs_again_after_the_block():
    plan = Real._cmdx_.plan
    with stub(Real, "stub"):
        assert Real.execute().value == "stub"

    assert Real.execute().value == "real"
    assert Real._cmdx_.plan is plan


def test_the_task_runs_again_after_a_block_that_was_left_by_an_error():
    with pytest.raises(KeyError), stub(Real, "stub"):
        raise KeyError

    assert Real.execute().value == "real"


def test_a_task_that_never_ran_before_is_itself_after_the_block():
    class Fresh(Task[str]):
        def work(self) -> str:
            return "fresh"

    with stub(Fresh, "stub"):
        assert Fresh.execute().value == "stub"
    assert Fresh.execute().value == "fresh"


def test_the_inner_of_two_stubs_counts():
    with stub(Real, "outer"):
        with stub(Real, "inner"):
            assert Real.execute().value == "inner"
        assert Real.execute().value == "outer"
    assert Real.execute().value == "real"


def test_several_tasks_are_stubbed_at_once():
    with stub(Real, "one"), stub(SendMail, "two"):
        assert (Real.execute().value, SendMail.execute().value) == ("one", "two")


def test_derived_classes_and_ancestors_are_not_stubbed():
    class Child(Real):
        pass

    with stub(Real, "stub"):
        assert Child.execute().value == "real"
    with stub(Child, "stub"):
        assert Real.execute().value == "real"


def test_another_thread_runs_the_task_itself():
    values = []
    with stub(Real, "stub"):
        assert Real.execute().value == "stub"
        thread = Thread(target=lambda: values.append(Real.execute().value))
        Context().run(thread.start)
        thread.join()

    assert values == ["real"]


def test_two_threads_have_a_stub_each():
    meeting = Barrier(2)
    values = {}

    def run(name):
        with stub(Real, name):
            meeting.wait(20)
            values[name] = Real.execute().value
        meeting.wait(20)
        values["after", name] = Real.execute().value

    threads = [Thread(target=run, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert values == {
        "a": "a",
        "b": "b",
        ("after", "a"): "real",
        ("after", "b"): "real",
    }


def test_coroutines_are_stubbed_if_they_inherit_the_context():
    async def main():
        with stub(Real, "stub"):
            return await asyncio.gather(
                asyncio.create_task(Real.aexecute()),
                asyncio.create_task(Real.aexecute(), context=Context()),
            )

    assert [result.value for result in asyncio.run(main())] == ["stub", "real"]


def test_a_block_may_be_left_in_another_context():
    plan, elsewhere, block = Real._cmdx_.plan, Context(), stub(Real, "stub")
    elsewhere.run(block.__enter__)
    assert elsewhere.run(Real.execute).value == "stub"
    block.__exit__(None, None, None)

    assert elsewhere.run(Real.execute).value == "real"
    assert Real._cmdx_.plan is plan


def test_an_outer_stub_counts_again_where_the_inner_one_was_left_elsewhere():
    elsewhere, outer, inner = Context(), stub(Real, "outer"), stub(Real, "inner")
    elsewhere.run(outer.__enter__)
    elsewhere.run(inner.__enter__)
    inner.__exit__(None, None, None)
    assert elsewhere.run(Real.execute).value == "outer"
    outer.__exit__(None, None, None)

    assert elsewhere.run(Real.execute).value == "real"


def test_stubs_left_in_another_context_do_not_pile_up():
    elsewhere = Context()
    for _ in range(3):
        block = stub(Real, "stub")
        elsewhere.run(block.__enter__)
        block.__exit__(None, None, None)
    last = stub(Real, "last")
    elsewhere.run(last.__enter__)
    held = [value for value in elsewhere.values() if isinstance(value, tuple)]
    last.__exit__(None, None, None)

    assert [len(stubs) for stubs in held] == [1]


def test_a_class_that_is_declared_on_in_the_block_stays_whole():
    class Late(Task[str]):
        def work(self) -> str:
            return str(self.attempt)

    with stub(Late, "stub"):
        retry_on(ValueError, limit=1)(Late)

    assert Late.execute().value == "0"
    assert Late.retry_policy.limit == 1


@pytest.mark.parametrize(
    "outcomes",
    [{"skipped": "a", "failed": "b"}, {"outcome": 1, "failed": "b"}],
)
def test_a_run_ends_in_one_way_only(outcomes):
    given = [outcomes.pop("outcome")] if "outcome" in outcomes else []
    with (
        pytest.raises(TypeError, match="only one outcome"),
        stub(Real, *given, **outcomes),
    ):
        pass


def test_only_tasks_are_stubbed():
    with pytest.raises(TypeError, match="must be a task class"), stub(print):
        pass
