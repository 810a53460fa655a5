"""Steps that run one after the other."""

from __future__ import annotations

import pickle
from datetime import date

import pytest

from cmdx import (
    Fault,
    Task,
    Workflow,
    after_execution,
    clock,
    deadline,
    group,
    optional,
    output,
    parallel,
    required,
    retry_on,
    step,
)
from cmdx.run.deadlines import DeadlineExceeded


class Note(Task[str]):
    """Writes its name into the context."""

    def work(self) -> str:
        name = type(self).__name__
        self.context["noted"] = [*self.context.get("noted", []), name]
        return name


class A(Note):
    pass


class B(Note):
    pass


class C(Note):
    pass


class Failing(Note):
    def work(self) -> str:
        super().work()
        self.fail("out of stock", code=7)


class Broken(Note):
    def work(self) -> str:
        super().work()
        raise LookupError("no shelf")


class Skipped(Note):
    def work(self) -> str:
        super().work()
        self.skip("nothing to do")


def flow(*listed, **names):
    return type("Flow", (Workflow,), {"steps": listed, **names})


def noted(result):
    return result.context.get("noted", [])


# -- the context ----------------------------------------------------------------


def test_steps_share_the_context_of_the_workflow(run):
    class Write(Task[None]):
        def work(self) -> None:
            self.context.total = self.context.price * 2

    class Read(Task[int]):
        def work(self) -> int:
            return self.context.total + 1

    result = run(flow(Write, Read), price=10)

    assert result.value == 21
    assert result.context.to_dict() == {"price": 10, "total": 20}
    assert all(each.context is result.context for each in result.chain)


def test_an_output_of_a_step_is_an_input_of_the_next(run):
    class Find(Task[None]):
        shelf: int = output()

        def work(self) -> None:
            self.shelf = 7

    class Fetch(Task[int]):
        shelf: int

        def work(self) -> int:
            return self.shelf

    assert run(flow(Find, Fetch)).value == 7


class Charge(Task[str]):
    amount: int
    currency: str

    def work(self) -> str:
        return f"{self.amount} {self.currency}"


def test_steps_find_the_defaults_of_the_inputs_of_the_workflow(run):
    class Flow(Workflow[str]):
        amount: int = required()
        currency: str = "EUR"
        steps = (Charge,)

    assert run(Flow, amount=3).value == "3 EUR"
    assert run(Flow, amount=3, currency="USD").value == "3 USD"


def test_a_default_takes_the_place_of_a_none_that_is_refused(run):
    class Flow(Workflow[str]):
        amount: int = required()
        currency: str = "EUR"
        steps = (Charge,)

    assert run(Flow, {"amount": 3, "currency": None}).value == "3 EUR"


def test_steps_find_what_an_input_of_the_workflow_has_a_source_for(run):
    class Flow(Workflow[str]):
        amount: int = required(source="counted")
        currency: str = optional(factory=lambda: "NOK")
        steps = (Charge,)

        def counted(self):
            return 5

    assert run(Flow).value == "5 NOK"


class Use(Task[date]):
    day: date

    def work(self) -> date:
        return self.day


class Scheduled(Workflow[date]):
    day: date = required(format="%d.%m.%Y")
    name: str = optional(default="", transform=str.lower)
    steps = (Use,)


@pytest.mark.parametrize("listing", [tuple, lambda steps: (group(*steps),)])
def test_steps_find_the_inputs_of_the_workflow_as_they_were_resolved(run, listing):
    flow = type("Flow", (Scheduled,), {"steps": listing((Use,))})

    result = run(flow, day="01.05.2026", name="ADA")

    assert result.value == date(2026, 5, 1)
    assert result.context.name == "ada"


def test_parallel_steps_find_the_inputs_as_they_were_resolved(run):
    flow = type("Flow", (Scheduled,), {"steps": (parallel(step(Use, into="used")),)})

    assert run(flow, day="01.05.2026").context.used == date(2026, 5, 1)


def test_nested_workflows_find_the_inputs_as_they_were_resolved(run):
    inner = type("Inner", (Workflow,), {"steps": (Use,)})
    flow = type("Flow", (Scheduled,), {"steps": (inner,)})

    assert run(flow, day="01.05.2026").value == date(2026, 5, 1)


def test_a_workflow_with_bad_inputs_runs_no_step(run):
    class Flow(Workflow[str]):
        amount: int = required()
        steps = (A,)

    result = run(Flow, {"amount": "a lot"})

    assert result.reason == "amount must be a whole number"
    assert noted(result) == []


def test_a_workflow_must_set_its_outputs_by_its_steps(run):
    class Flow(Workflow[str]):
        shelf: int = output()
        steps = (A,)

    assert run(Flow).reason == "shelf must be set in the context"
    assert run(Flow, shelf=3).success


# -- failures and skips ---------------------------------------------------------


@pytest.mark.parametrize(
    ("culprit", "reason"),
    [(Failing, "out of stock"), (Broken, "[LookupError] no shelf")],
)
def test_a_failure_stops_the_workflow_and_is_thrown(run, culprit, reason):
    result = run(flow(A, culprit, B))

    assert result.failed
    assert result.reason == reason
    assert noted(result) == ["A", culprit.__name__]
    assert result.origin.task is culprit
    assert result.caused_failure.task is culprit
    assert result.is_thrown_failure
    assert result.cause is None


def test_the_origin_is_kept_through_nested_workflows(run):
    inside = flow(A, Broken)
    result = run(flow(inside, B))

    assert result.origin.task is inside
    assert result.caused_failure.task is Broken
    assert isinstance(result.caused_failure.cause, LookupError)
    assert noted(result) == ["A", "Broken"]


def test_a_failed_workflow_does_not_tell_a_line_of_ours_as_its_place(run):
    result = run(flow(A, Failing))

    assert result.halted_at is None
    assert result.origin.halted_at.startswith(__file__)


def test_a_failed_workflow_raises_the_fault_of_the_step():
    class Flow(Workflow[str]):
        steps = (A, Failing)

    with pytest.raises(Failing.Fault) as caught:
        Flow.execute_or_raise()

    assert caught.value.result.metadata == {"code": 7}


def test_what_a_step_raised_is_the_cause_of_the_fault():
    with pytest.raises(Fault) as caught:
        flow(Broken).execute_or_raise()

    assert isinstance(caught.value.__cause__, LookupError)


def test_a_skip_does_not_stop_the_workflow(run):
    result = run(flow(A, Skipped, B))

    assert result.success
    assert noted(result) == ["A", "Skipped", "B"]


def test_a_workflow_of_skipped_steps_is_no_skip(run):
    assert run(flow(Skipped)).success


def test_a_workflow_does_not_retry_the_failures_of_its_tasks(run, instant):
    result = run(retry_on(Exception, limit=3)(flow(A, Broken)))

    assert result.failed
    assert result.retries == 0
    assert noted(result) == ["A", "Broken"]
    assert instant.pauses == []


def test_a_step_retries_itself(run, instant):
    @retry_on(LookupError, limit=2, delay=0.5)
    class Stubborn(Broken):
        pass

    result = run(flow(A, Stubborn))

    assert noted(result) == ["A", "Stubborn", "Stubborn", "Stubborn"]
    assert result.chain[2].retries == 2
    assert instant.pauses == [0.5, 0.5]


def test_a_workflow_retries_what_a_gate_raised(run, instant):
    asked = []

    def gate(_workflow):
        asked.append(True)
        if len(asked) == 1:
            raise TimeoutError

    result = run(retry_on(TimeoutError)(flow(A, group(B, if_=gate))))

    assert result.success
    assert result.retries == 1
    assert noted(result) == ["A", "A"]
    assert instant.pauses == [0.5]


# -- the value ------------------------------------------------------------------


def test_the_value_is_that_of_the_last_step(run):
    assert run(flow(A, B)).value == "B"
    assert run(flow(A, group(B, C))).value == "C"
    assert run(flow(flow(A, B))).value == "B"


@pytest.mark.parametrize(
    "last",
    [
        Skipped,
        group(B, if_=False),
        step(Failing, on_failure="continue"),
        parallel(B, C),
    ],
    ids=["skipped", "gated", "tolerated", "parallel"],
)
def test_a_last_step_without_a_value_leaves_the_workflow_without_one(run, last):
    result = run(flow(A, last))

    assert result.success
    assert result.value is None


# -- gates ----------------------------------------------------------------------


def test_a_gate_is_asked_when_its_turn_has_come(run):
    result = run(flow(A, group(B, if_=lambda flow: flow.context.noted == ["A"])))

    assert noted(result) == ["A", "B"]


def test_a_gate_within_a_closed_gate_is_not_asked(run):
    def gate():
        raise AssertionError("it was asked")

    assert run(flow(group(group(A, if_=gate), if_=False))).success


def test_a_gate_that_raises_fails_the_workflow(run):
    error = LookupError("no answer")

    def gate():
        raise error

    result = run(flow(A, group(B, if_=gate)))

    assert result.cause is error
    assert noted(result) == ["A"]


def test_a_gate_may_halt_the_workflow(run):
    result = run(flow(A, group(B, if_=lambda flow: flow.skip("enough")), C))

    assert result.skipped
    assert result.reason == "enough"
    assert noted(result) == ["A"]


# -- groups that run to their end -----------------------------------------------


class Checking(Task[None]):
    """Finds two problems."""

    def work(self) -> None:
        self.errors.add("sku", "is unknown", code="unknown")
        self.errors.add("count", "is too high")


def test_a_group_that_continues_runs_whole_and_stops_after_itself(run):
    checks = group(Failing, A, Checking, B, continue_on_failure=True)
    result = run(flow(checks, C))

    assert result.failed
    assert noted(result) == ["Failing", "A", "B"]
    assert result.errors.to_dict() == {
        "Failing.failed": ["out of stock"],
        "Checking.sku": ["is unknown"],
        "Checking.count": ["is too high"],
    }
    assert [each.code for each in result.errors] == ["failed", "unknown", None]
    assert result.reason == str(result.errors)
    assert result.origin.task is Failing
    assert result.caused_failure.task is Failing


def test_a_group_that_continues_passes_its_first_failure_on(run):
    checks = group(Checking, A, Failing, continue_on_failure=True)
    result = run(flow(checks))

    assert (result.origin.task, result.is_thrown_failure) == (Checking, True)
    assert result.threw_failure.task is Checking
    assert result.halted_at is None
    with pytest.raises(Checking.Fault) as raised:
        result.or_raise()
    assert raised.value.result.task is Checking


def test_parallel_steps_that_continue_pass_on_the_first_one_listed(run):
    checks = parallel(A, Broken, Failing, continue_on_failure=True)
    result = run(flow(checks))

    assert result.origin.task is Broken
    assert isinstance(result.origin.cause, LookupError)
    assert len(result.errors) == 2


def test_what_was_collected_can_be_retried_by_the_fault_of_the_step(run, instant):
    class Patient(Task[None]):
        def work(self) -> None:
            checks = group(Failing, A, continue_on_failure=True)
            flow(checks).execute_or_raise()

    result = run(retry_on(Failing.Fault, limit=2)(Patient))

    assert (result.retries, len(instant.pauses)) == (2, 2)
    assert result.origin.task is Failing


def test_a_group_that_continues_without_failures_stops_nothing(run):
    assert noted(run(flow(group(A, B, continue_on_failure=True), C))) == ["A", "B", "C"]


def test_a_failure_without_a_reason_is_collected_too(run):
    class Silent(Task[None]):
        def work(self) -> None:
            self.fail()

    result = run(flow(group(Silent, continue_on_failure=True)))

    assert result.errors.to_dict() == {"Silent.failed": ["failed"]}


@pytest.mark.parametrize(
    ("inside", "ran"),
    [
        (group(Failing, A), ["Failing", "B"]),
        (group(group(Failing), A), ["Failing", "B"]),
        (group(Failing, A, continue_on_failure=True), ["Failing", "A", "B"]),
        (
            group(group(Failing, continue_on_failure=True), A),
            ["Failing", "B"],
        ),
        (flow(Failing, A), ["Failing", "B"]),
        (parallel(Failing), ["B"]),
    ],
    ids=["stopping", "nested", "continuing", "continuing within", "workflow", "beside"],
)
def test_a_group_that_continues_goes_on_after_what_is_in_it(run, inside, ran):
    result = run(flow(group(inside, B, continue_on_failure=True), C))

    assert result.failed
    assert noted(result) == ran
    assert [each.message for each in result.errors] == ["out of stock"]


def test_a_group_that_continues_does_not_overrule_a_gate_that_halts(run):
    gated = group(A, if_=lambda flow: flow.fail("closed"))
    result = run(flow(group(Failing, gated, B, continue_on_failure=True)))

    assert result.reason == "closed"
    assert noted(result) == ["Failing"]


def test_what_was_collected_can_be_seen_by_hooks(run):
    seen = []

    class Flow(Workflow[None]):
        steps = (group(Failing, continue_on_failure=True),)

        @after_execution
        def look(self) -> None:
            seen.append(self.errors["Failing.failed"])

    run(Flow)

    assert seen == [["out of stock"]]


# -- a step under other names, or one that may fail -----------------------------


class Find(Task[str]):
    id: int

    def work(self) -> str:
        self.context.found = self.id
        return f"thing {self.id}"


def test_a_step_takes_its_input_from_another_key(run):
    result = run(flow(step(Find, map={"id": "product_id"})), product_id=7)

    assert result.value == "thing 7"
    assert result.context.to_dict() == {"product_id": 7, "found": 7}


def test_a_step_leaves_its_value_under_a_key_and_nothing_else(run):
    listed = (
        step(Find, map={"id": "product_id"}, into="product"),
        step(Find, map={"id": "owner_id"}, into="owner"),
    )
    result = run(flow(*listed), product_id=7, owner_id=8)

    assert result.context.to_dict() == {
        "product_id": 7,
        "owner_id": 8,
        "product": "thing 7",
        "owner": "thing 8",
    }


def test_a_key_that_is_mapped_hides_what_has_the_name_of_the_input(run):
    twice = flow(step(Find, map={"id": "product_id"}, into="product"))

    assert run(twice, id=1, product_id=7).context.product == "thing 7"
    assert run(twice, id=1).reason == "id is required"


def test_names_may_be_swapped(run):
    class Subtract(Task[int]):
        minuend: int
        subtrahend: int

        def work(self) -> int:
            return self.minuend - self.subtrahend

    swapped = {"minuend": "subtrahend", "subtrahend": "minuend"}

    assert run(flow(step(Subtract, map=swapped)), minuend=1, subtrahend=5).value == 4


def test_a_renamed_step_still_sees_the_rest_of_the_context(run):
    class Price(Task[int]):
        id: int

        def work(self) -> int:
            return self.id * self.context.rate

    assert run(flow(step(Price, map={"id": "key"})), key=3, rate=2).value == 6


def test_what_a_renamed_step_deletes_is_gone(run):
    class Forget(Task[None]):
        def work(self) -> None:
            del self.context.secret

    result = run(flow(step(Forget, map={"id": "key"})), key=3, secret=1)

    assert result.context.to_dict() == {"key": 3}


def test_a_step_with_into_cannot_change_the_context_in_place(run):
    class Add(Task[int]):
        def work(self) -> int:
            self.context.basket.append("egg")
            return len(self.context.basket)

    result = run(flow(step(Add, into="count")), basket=[])

    assert result.context.to_dict() == {"basket": [], "count": 1}


def test_a_renamed_step_cannot_change_the_original_in_place(run):
    class Add(Task[None]):
        def work(self) -> None:
            self.context.goods.append("egg")

    result = run(flow(step(Add, map={"goods": "basket"}, into="none")), basket=[])

    assert result.context.basket == []


def test_a_skipped_step_leaves_what_it_wrote_but_no_value(run):
    renamed = flow(step(Skipped, map={"x": "y"}))
    valued = flow(step(Skipped, into="value"))

    assert run(renamed).context.to_dict() == {"noted": ["Skipped"]}
    assert run(valued).context.to_dict() == {}


def test_a_step_whose_failure_is_tolerated_does_not_stop_the_workflow(run):
    result = run(flow(A, step(Failing, on_failure="continue"), B))

    assert result.success
    assert noted(result) == ["A", "Failing", "B"]
    assert [str(each.status) for each in result.chain] == [
        "success",
        "success",
        "failed",
        "success",
    ]


def test_a_tolerated_failure_is_not_collected(run):
    tolerated = step(Failing, on_failure="continue")
    result = run(flow(group(tolerated, A, continue_on_failure=True), B))

    assert result.success
    assert not result.errors


def test_a_failed_renamed_step_leaves_nothing_behind(run):
    tolerated = step(Failing, map={"x": "y"}, on_failure="continue")

    assert run(flow(tolerated)).context.to_dict() == {}


@pytest.mark.parametrize("listed", [Broken, parallel(Broken), step(Broken, into="x")])
def test_a_step_can_be_stubbed(run, stub, listed):
    stubbed = stub(Broken, "found")
    result = run(flow(A, listed))

    assert result.success
    assert result.chain[2].value == "found"
    assert stubbed.calls == [{"noted": ["A"]}]


# -- in time --------------------------------------------------------------------


class Slow(Note):
    def work(self) -> str:
        clock.current.get().advance(0.05)
        return super().work()


@pytest.mark.parametrize(
    ("listed", "ran"),
    [
        ((Slow, Slow, Slow), ["Slow", "Slow"]),
        ((Slow, Slow, group(A)), ["Slow", "Slow"]),
        ((Slow, Slow, parallel(A, B)), ["Slow", "Slow"]),
        ((Slow, Slow, parallel(group(A), B)), ["Slow", "Slow"]),
        ((Slow, Slow, group(A, continue_on_failure=True)), ["Slow", "Slow"]),
        ((Slow, A), ["Slow", "A"]),
    ],
    ids=["step", "group", "parallel", "nested", "continuing", "in time"],
)
@pytest.mark.usefixtures("instant")
def test_no_step_starts_after_the_deadline(run, listed, ran):
    with deadline(0.08):
        result = run(flow(*listed))

    assert noted(result) == ran
    if len(ran) == len(listed):
        assert result.success
    else:
        assert isinstance(result.cause, DeadlineExceeded)
        assert result.stopped == "deadline"
        assert "the deadline passed before" in result.reason


@pytest.mark.usefixtures("instant")
def test_what_was_done_before_the_deadline_is_rolled_back(run):
    class Undo(Slow):
        def rollback(self) -> None:
            self.context["undone"] = self.context.get("undone", 0) + 1

    with deadline(0.08):
        result = run(flow(Undo, Undo, Undo))

    assert result.context.undone == 2


@pytest.mark.usefixtures("instant")
def test_a_deadline_of_the_workflow_itself_counts_as_well(run):
    result = run(retry_on(KeyError, deadline=0.08)(flow(Slow, Slow, Slow)))

    assert noted(result) == ["Slow", "Slow"]
    assert isinstance(result.cause, DeadlineExceeded)


# -- the chain ------------------------------------------------------------------


def test_every_step_is_in_the_chain_with_parent_and_depth(run):
    inside = flow(B, C)
    result = run(flow(A, group(inside)))
    tree = [(each.task, each.parent, each.depth) for each in result.chain]
    outer, nested = result.chain[0], result.chain[4]

    assert tree == [
        (result.task, None, 0),
        (A, outer, 1),
        (B, nested, 2),
        (C, nested, 2),
        (inside, outer, 1),
    ]


class Nested(Workflow[str]):
    steps = (A, group(B), C)


def test_a_workflow_and_its_steps_are_pickled():
    result = Nested.execute()

    copied = pickle.loads(pickle.dumps(result))

    assert copied.value == "C"
    assert [each.task for each in copied.chain] == [Nested, A, B, C]
