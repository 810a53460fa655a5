"""Results, chains and exceptions travel between processes."""

from __future__ import annotations

import asyncio
import copy
import io
import pickle
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from threading import Lock
from types import SimpleNamespace

import pytest

from cmdx import (
    CallbackError,
    CmdxError,
    Context,
    DefinitionError,
    DeprecatedTaskError,
    Fault,
    FinishedTaskError,
    ImplementationError,
    MiddlewareError,
    NoValueError,
    RecordedError,
    Task,
    UnknownContextKey,
    UnknownEntryError,
    Workflow,
    clock,
    detached,
    middleware,
    on_failed,
    parallel,
    pickling,
    retriers,
    retry_on,
    task_cancelled,
)


class Good(Task[dict[str, int]], tags=("a", "b"), correlation_id=lambda: "request-1"):
    def work(self) -> dict[str, int]:
        self.metadata["noted"] = [1, 2]
        return {"answer": 42}


class Idle(Task[None]):
    def work(self) -> None:
        self.skip("nothing to do", code=1)


class Bad(Task[None]):
    def work(self) -> None:
        self.errors.add("name", "is empty", "blank")
        self.fail("no", code=2)


class Broken(Task[None]):
    def work(self) -> None:
        raise OSError(28, "disk full")

    def rollback(self) -> None:
        raise ValueError("stuck")


@retry_on(TimeoutError, limit=2, delay=0)
class Tired(Task[None]):
    def work(self) -> None:
        raise TimeoutError(f"attempt {self.attempt}")


class Throwing(Task[None]):
    def work(self) -> None:
        Good.execute()
        self.throw(Bad.execute())


class Strict(Task[None]):
    def work(self) -> None:
        Bad.execute_or_raise()


class VeryStrict(Task[None]):
    def work(self) -> None:
        Good.execute()
        Strict.execute_or_raise()


class Relay(Task[None]):
    def work(self) -> None:
        Broken.execute_or_raise()


EVERY_TASK = pytest.mark.parametrize(
    "task",
    [Good, Idle, Bad, Broken, Tired, Throwing, Strict, VeryStrict, Relay],
    ids=lambda task: task.__name__,
)


def sent(something):
    return pickle.loads(pickle.dumps(something))


# -- results --------------------------------------------------------------------


@EVERY_TASK
def test_a_result_arrives_with_all_its_facts(task):
    result = task.execute(user="ada")

    arrived = sent(result)

    assert arrived == result
    assert hash(arrived) == hash(result)
    assert arrived.task is task
    assert arrived.to_dict() == result.to_dict()
    assert repr(arrived) == repr(result)
    assert arrived.context == result.context


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_every_protocol_will_do(protocol):
    result = VeryStrict.execute()

    arrived = pickle.loads(pickle.dumps(result, protocol))

    assert arrived.to_dict() == result.to_dict()


@EVERY_TASK
def test_a_result_can_be_copied_deeply(task):
    result = task.execute()

    assert copy.deepcopy(result).to_dict() == result.to_dict()


@EVERY_TASK
def test_what_has_arrived_can_be_sent_on(task):
    result = task.execute()

    assert sent(sent(result)).to_dict() == result.to_dict()


def test_the_value_arrives():
    assert sent(Good.execute()).value == {"answer": 42}


def test_the_cause_arrives_as_the_same_kind_of_exception():
    arrived = sent(Broken.execute())

    assert type(arrived.cause) is OSError
    assert arrived.cause.errno == 28
    assert type(arrived.rollback_error) is ValueError
    with pytest.raises(OSError, match="disk full"):
        arrived.or_raise()


def test_the_attempts_arrive():
    result = Tired.execute()
    arrived = sent(result)

    assert [str(each.error) for each in arrived.attempts] == [
        "attempt 0",
        "attempt 1",
        "attempt 2",
    ]
    assert arrived.retries == 2
    assert arrived.stopped is result.stopped
    assert [each[:2] for each in arrived.attempts] == [
        each[:2] for each in result.attempts
    ]


def test_a_result_that_has_arrived_still_refuses_to_be_changed_or_true():
    arrived = sent(Good.execute())

    with pytest.raises(AttributeError):
        arrived.status = "failed"
    with pytest.raises(TypeError):
        bool(arrived)


@pytest.mark.parametrize("task", [Throwing, Strict, VeryStrict])
def test_the_failure_walk_arrives(task):
    arrived = sent(task.execute())

    assert arrived.caused_failure.task is Bad
    assert arrived.caused_failure.errors.to_dict() == {"name": ["is empty"]}
    assert arrived.caused_failure in arrived.chain
    assert arrived.is_thrown_failure
    with pytest.raises(Bad.Fault) as raised:
        arrived.or_raise()
    assert raised.value.result == arrived.caused_failure


class Cluttered(Task[int]):
    def work(self) -> int:
        self.lock = Lock()
        self.later = lambda: 1
        return 1


def test_what_work_hung_on_its_task_stays_at_home():
    assert sent(Cluttered.execute()).value == 1


def test_a_shared_context_is_still_shared_after_the_journey():
    shared = Context(user="ada")
    first, second = sent((Good.execute(shared), Idle.execute(shared)))

    assert first.context is second.context


class Sending(Task[bytes]):
    def work(self) -> bytes:
        return pickle.dumps(Good.execute())


def test_a_result_can_be_sent_while_its_parent_still_runs():
    result = Sending.execute()
    arrived = pickle.loads(result.value)

    assert arrived.chain.root is None
    assert arrived.parent_tid == result.tid
    assert arrived.depth == 1
    assert arrived.cid == result.cid


PARCELS = []


def packing(_task):
    result = yield
    PARCELS.append(pickle.dumps(result))


@middleware(packing)
class Packed(Good):
    pass


def test_a_result_can_be_sent_by_a_middleware():
    PARCELS.clear()
    result = Packed.execute()
    arrived = pickle.loads(PARCELS[0])

    assert arrived == result
    assert arrived.value == {"answer": 42}
    assert arrived.cid == result.cid


# -- chains ---------------------------------------------------------------------


@EVERY_TASK
def test_a_chain_arrives_whole(task):
    chain = task.execute().chain
    arrived = sent(chain)

    assert arrived.id == chain.id
    assert arrived.xid == chain.xid
    assert arrived.status is chain.status
    assert list(arrived) == list(chain)
    assert arrived.root == chain.root
    assert arrived.tree() == chain.tree()
    assert [each.to_dict() for each in arrived] == [each.to_dict() for each in chain]


def test_parents_and_depths_arrive():
    root, good, bad, strict = sent(VeryStrict.execute()).chain

    assert [each.depth for each in (root, good, bad, strict)] == [0, 1, 2, 1]
    assert strict.parent == root
    assert bad.parent == strict
    assert bad.parent_tid == strict.tid
    assert good.parent == root


def test_the_results_of_a_chain_that_has_arrived_know_that_chain():
    arrived = sent(VeryStrict.execute().chain)

    assert all(result.chain is arrived for result in arrived)


# -- faults ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("task", "kind"),
    [
        (Bad, Bad.Fault),
        (Throwing, Bad.Fault),
        (Strict, Bad.Fault),
        (VeryStrict, Bad.Fault),
    ],
)
def test_a_fault_arrives_as_the_fault_of_its_task(task, kind):
    with pytest.raises(Fault) as raised:
        task.execute_or_raise()
    fault = raised.value

    arrived = sent(fault)

    assert type(arrived) is kind
    assert str(arrived) == str(fault) == "no"
    assert arrived.result == fault.result
    assert arrived.result.to_dict() == fault.result.to_dict()
    assert arrived.task is Bad
    assert arrived.context == fault.context
    assert arrived.chain.tree() == fault.chain.tree()


def test_the_fault_of_a_value_arrives():
    with pytest.raises(Broken.Fault) as raised:
        _ = Broken.execute().value

    arrived = sent(raised.value)

    assert type(arrived) is Broken.Fault
    assert type(arrived.result.cause) is OSError


# -- every exception class ------------------------------------------------------


class Empty(Task[None]):
    pass


def unknown_key():
    return Context(user="ada").usr


def unknown_retrier():
    return retriers.lookup("exponentail")


def not_a_definition():
    return retry_on(TimeoutError, limit=-1)


def no_work():
    return Empty.execute()


def no_value():
    return Idle.execute().value


def run_twice():
    invocation = Good()
    invocation.run()
    return invocation.run()


def deprecated():
    class Old(Good, deprecated="error"):
        pass

    return Old.execute()


@middleware(lambda _task: iter(()))
class Unyielding(Good):
    pass


EXCEPTIONS = [
    (unknown_key, UnknownContextKey),
    (unknown_retrier, UnknownEntryError),
    (not_a_definition, DefinitionError),
    (no_work, ImplementationError),
    (no_value, NoValueError),
    (run_twice, FinishedTaskError),
    (deprecated, DeprecatedTaskError),
    (Unyielding.execute_or_raise, MiddlewareError),
    (Bad.execute_or_raise, Bad.Fault),
    (Strict.execute_or_raise, Bad.Fault),
]


@pytest.mark.parametrize("journey", [sent, copy.copy, copy.deepcopy])
@pytest.mark.parametrize(("raising", "kind"), EXCEPTIONS)
def test_every_exception_arrives_as_itself(raising, kind, journey):
    with pytest.raises(kind) as raised:
        raising()

    arrived = journey(raised.value)

    assert type(arrived) is kind
    assert str(arrived) == str(raised.value)
    assert arrived.args == raised.value.args
    assert vars(arrived).keys() == vars(raised.value).keys()


@pytest.mark.parametrize("kind", [CmdxError, CallbackError, NoValueError])
def test_plain_exceptions_arrive_as_themselves(kind):
    arrived = sent(kind("cause and cure"))

    assert type(arrived) is kind
    assert str(arrived) == "cause and cure"


def test_an_unknown_key_still_knows_its_name():
    with pytest.raises(UnknownContextKey) as raised:
        unknown_key()

    assert sent(raised.value).name == raised.value.name == "usr"


# -- what became of a run that did not end plainly ------------------------------


class Paging(Bad):
    @on_failed
    def page(self) -> None:
        raise OSError("no pager")


class Interrupted(Task[None]):
    def work(self) -> None:
        raise KeyboardInterrupt


class Halting(Task[None]):
    def work(self) -> None:
        self.context.outer.fail("enough")


class Halted(Task[None]):
    def work(self) -> None:
        Halting.execute({"outer": self})


def test_what_was_replaced_and_where_it_was_halted_arrive():
    paged, bad = sent(Paging.execute()), Bad.execute()

    assert paged.replaced.reason == bad.reason
    assert isinstance(paged.cause, OSError)
    assert sent(bad).halted_at == bad.halted_at


def test_an_interrupted_result_arrives():
    kept = []

    def keep(_sender, *, result, **_):
        kept.append(result)

    with task_cancelled.connected_to(keep), pytest.raises(KeyboardInterrupt):
        Interrupted.execute()

    arrived = sent(kept[0])
    assert arrived.stopped == "cancelled"
    assert isinstance(arrived.cause, KeyboardInterrupt)


def test_the_chain_of_a_halt_that_passed_through_an_inner_run_arrives():
    result = Halted.execute()
    arrived = sent(result)

    assert arrived.chain.tree() == result.chain.tree()
    assert arrived.chain[1].stopped == "cancelled"


# -- before the run -------------------------------------------------------------


class Welcome(Task[str]):
    name: str
    greeting: str = "Hello"

    def work(self) -> str:
        return f"{self.greeting}, {self.name}"


@pytest.mark.parametrize("journey", [sent, copy.copy, copy.deepcopy])
def test_an_invocation_that_has_not_run_arrives_and_runs(journey):
    invocation = Welcome(name="Ada")

    arrived = journey(invocation)

    assert arrived.run().value == "Hello, Ada"
    if journey is sent:
        assert invocation.run().value == "Hello, Ada"


@pytest.mark.parametrize("source", [{"name": "Ada"}, Context(name="Ada")])
def test_an_invocation_with_a_source_arrives_and_runs(source):
    assert sent(Welcome(source, greeting="Hi")).run().value == "Hi, Ada"


def test_an_invocation_arrives_and_runs_asynchronously():
    assert asyncio.run(sent(Welcome(name="Ada")).arun()).value == "Hello, Ada"


def test_an_invocation_that_arrived_keeps_its_id():
    invocation = Welcome(name="Ada")

    assert sent(invocation).run().tid == invocation.tid


def test_an_invocation_that_has_run_does_not_run_again_after_the_journey():
    invocation = Welcome(name="Ada")
    invocation.run()

    with pytest.raises(FinishedTaskError):
        sent(invocation).run()


# -- settled in another time ----------------------------------------------------


def test_durations_do_not_go_on_after_the_journey():
    parcel = pickle.dumps(Good.execute())

    with clock.use(clock.Clock()):
        first, second = pickle.loads(parcel), pickle.loads(parcel)

    assert first.duration == second.duration
    assert first.started_at == second.started_at


# -- what cannot be pickled -----------------------------------------------------


class ApiError(Exception):
    """Can be pickled, but not be rebuilt."""

    def __init__(self, status, body):
        super().__init__(f"{status}: {body}")


class LockedError(Exception):
    """Cannot be pickled."""

    def __init__(self, message):
        super().__init__(message)
        self.lock = Lock()


class Choosy:
    """Can be pickled, but not be rebuilt."""

    def __init__(self, wanted):
        self.wanted = wanted

    def __reduce__(self):
        return Choosy, ()

    def __repr__(self):
        return "a choosy value"


class Returning(Task[object]):
    def work(self) -> object:
        return self.context.given


class Setting(Task[None]):
    def work(self) -> None:
        self.metadata["given"] = self.context.pop("given")


class Raising(Task[None]):
    def work(self) -> None:
        raise self.context.pop("given")


@retry_on(Exception, limit=1, delay=0)
class RaisingTwice(Raising):
    def work(self) -> None:
        if self.attempt == 0:
            super().work()


class RollingBack(Task[None]):
    def work(self) -> None:
        self.fail("no")

    def rollback(self) -> None:
        raise self.context.pop("given")


class Replacing(Raising):
    @on_failed
    def replace(self) -> None:
        raise OSError("later")


class Outer(Task[None]):
    def work(self) -> None:
        Returning.execute(given=self.context.pop("given"))


@pytest.mark.parametrize(
    ("task", "place"),
    [
        (Returning, lambda result: result.value),
        (Returning, lambda result: result.context.given),
        (Setting, lambda result: result.metadata["given"]),
        (Outer, lambda result: result.chain[1].context.given),
    ],
    ids=["value", "context", "metadata", "nested"],
)
@pytest.mark.parametrize(
    ("given", "kind", "text"),
    [
        (Choosy(1), "Choosy", "a choosy value"),
        (Lock(), "lock", "<unlocked _thread.lock"),
        ([Lock()], "list", "[<unlocked _thread.lock"),
        (ApiError(500, "oh"), "ApiError", "500: oh"),
    ],
    ids=["not rebuilt", "not pickled", "inside", "error"],
)
def test_a_value_that_cannot_be_rebuilt_is_a_stand_in(task, place, given, kind, text):
    result = task.execute(given=given, other="kept")
    arrived = sent(result)

    stand_in = place(arrived)
    assert stand_in.type_name == kind
    assert text in str(stand_in)
    assert arrived.status is result.status
    assert arrived.context.other == "kept"
    assert place(result) is given


@pytest.mark.parametrize(
    ("task", "place"),
    [
        (Raising, lambda result: result.cause),
        (RaisingTwice, lambda result: result.attempts[0].error),
        (RollingBack, lambda result: result.rollback_error),
        (Replacing, lambda result: result.replaced.cause),
    ],
    ids=["cause", "attempt", "rollback", "replaced"],
)
@pytest.mark.parametrize(
    "error",
    [ApiError(500, "oh"), LockedError("oh")],
    ids=["not rebuilt", "not pickled"],
)
def test_an_error_that_cannot_be_rebuilt_is_a_stand_in(task, place, error):
    result = task.execute(given=error)
    arrived = sent(result)

    stand_in = place(arrived)
    assert isinstance(stand_in, RecordedError)
    assert stand_in.type_name == type(error).__name__
    assert stand_in.message == str(error)
    assert arrived.reason == result.reason


def test_a_stand_in_is_raised_like_the_error_it_stands_for():
    arrived = sent(sent(Raising.execute(given=ApiError(500, "oh"))))

    with pytest.raises(RecordedError, match="500: oh"):
        arrived.or_raise()


def test_a_result_of_a_class_that_cannot_be_imported_arrives():
    class Local(Task[int], tags=("here",)):
        def work(self) -> int:
            return 42

    result = Local.execute()
    arrived = sent(result)

    assert arrived.value == 42
    assert arrived.tid == result.tid
    assert arrived.task.__qualname__ == Local.__qualname__
    with pytest.raises(NotImplementedError, match="read without its class"):
        arrived.task.execute_or_raise()


def test_a_chain_and_a_fault_with_what_cannot_be_rebuilt_arrive():
    result = Returning.execute(given=Lock())

    assert sent(result.chain).root.value.type_name == "lock"

    with pytest.raises(Fault) as raised:
        _ = Raising.execute(given=ApiError(500, "oh")).value
    assert sent(raised.value).result.cause.type_name == "ApiError"


def failing_with(status):
    return Raising.execute(given=ApiError(status, "oh"))


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_errors_that_cannot_be_rebuilt_do_not_break_a_pool_of_processes():
    with ProcessPoolExecutor(1, get_context("fork")) as pool:
        results = list(pool.map(failing_with, [500, 501]))

    assert [result.cause.message for result in results] == ["500: oh", "501: oh"]


def test_a_result_that_was_pickled_before_is_tried_again():
    result = Returning.execute(given=1)
    pickle.dumps(result)

    result.context.lock = Lock()

    assert sent(result).context.lock.type_name == "lock"


class Elsewhere(Task[None]):
    def work(self) -> None:
        with detached():
            self.throw(Locked.execute())

    @on_failed
    def replace(self) -> None:
        raise OSError("later")


class Locked(Task[None]):
    def work(self) -> None:
        self.context.lock = Lock()
        self.fail("no")


def test_what_a_replaced_failure_of_another_chain_holds_is_replaced_too():
    origin = sent(Elsewhere.execute()).replaced.origin

    assert origin.context.lock.type_name == "lock"


def test_a_class_that_cannot_be_imported_is_a_stand_in_and_no_task():
    class Local:
        pass

    assert sent(Returning.execute(given=Local)).value.type_name == "type"


class LocalSteps(Task[None]):
    def work(self) -> None:
        class Step(Task[None]):
            def work(self) -> None: ...

        class Flow(Workflow[None]):
            steps = (parallel(Step, Step),)

        Flow.execute()


def test_the_stand_in_of_a_task_is_one_class_and_of_the_same_type():
    _, first, second, flow = sent(LocalSteps.execute()).chain

    assert first.task is second.task
    assert [first.type, flow.type] == ["Task", "Workflow"]


def test_a_copy_holds_what_cannot_be_pickled():
    given = Lock()
    result = Returning.execute(given=given)
    copied = copy.copy(result)

    assert copied == result
    assert copied.value is given


def test_a_deep_copy_holds_what_cannot_be_pickled():
    given = Choosy(1)
    given.__deepcopy__ = lambda _memo: given

    copied = copy.deepcopy(Returning.execute(given=given))

    assert copied.value is given
    assert copied.context.given is given


def test_a_long_row_of_failures_that_were_passed_on_arrives():
    result = Bad.execute()
    for _ in range(1200):
        result = Rethrowing.execute(earlier=result)

    assert result.caused_failure.task is Bad
    assert sent(result).caused_failure.task is Bad
    with pytest.raises(Bad.Fault):
        result.or_raise()


@pytest.mark.parametrize("rows", [1, 2])
def test_a_long_row_of_failures_is_copied_deeply(rows):
    results = [Bad.execute() for _ in range(rows)]
    for _ in range(1500):
        results = [Rethrowing.execute(earlier=result) for result in results]

    copied = copy.deepcopy(results)

    assert copied == results
    assert all(result.caused_failure.task is Bad for result in copied)


class Rethrowing(Task[None]):
    def work(self) -> None:
        self.throw(self.context.earlier)


def test_a_copy_of_a_chain_has_its_records():
    result = Outer.execute(given=Lock())

    assert list(copy.copy(result.chain)) == list(result.chain)
    assert copy.copy(result.chain).id == result.cid


# -- how often it is tried whether a result can be rebuilt ----------------------


class Batch(Task[object]):
    size: int

    def work(self) -> object:
        return [Returning.execute(given=number) for number in range(self.size)]


class Apart(Task[object]):
    size: int

    def work(self) -> object:
        with detached():
            return [Batch.execute(size=1) for _ in range(self.size)]


class Row(Task[None]):
    size: int

    def work(self) -> None:
        with detached():
            result = Bad.execute()
            for _ in range(self.size):
                result = Rethrowing.execute(earlier=result)
        self.throw(result)


@pytest.fixture
def pickles(monkeypatch):
    """Count the bytes that are pickled to try, one entry per trial."""
    trials: list[int] = []

    def dumps(value):
        pickled = pickle.dumps(value)
        trials.append(len(pickled))
        return pickled

    counting = SimpleNamespace(**vars(pickle) | {"dumps": dumps})
    monkeypatch.setattr(pickling, "pickle", counting)
    return trials


@pytest.mark.parametrize("kept", ["result", "chain", "list", "both"])
@pytest.mark.parametrize("task", [Batch, Apart, Row])
@pytest.mark.parametrize("size", [3, 30, 300])
def test_results_that_hold_results_are_tried_once(pickles, task, size, kept):
    result = task.execute(size=size)
    whole = {
        "result": result,
        "chain": result.chain,
        "list": list(result.chain),
        "both": [result.chain, result],
    }

    pickled = pickle.dumps(whole[kept])

    assert len(pickles) == 1
    assert sum(pickles) < 2 * len(pickled)


def test_results_of_a_chain_with_what_cannot_be_rebuilt_are_tried_once(pickles):
    result = Rethrown.execute(size=30)
    few = pickle.dumps(result)
    bytes_for_one = sum(pickles)
    pickles.clear()

    many = pickle.dumps(list(result.chain))

    assert sum(pickles) == bytes_for_one
    assert len(many) < 2 * len(few)
    assert {arrived.cid for arrived in pickle.loads(many)} == {result.cid}


class Rethrown(Task[None]):
    size: int

    def work(self) -> None:
        result = Bad.execute()
        for _ in range(self.size):
            result = Rethrowing.execute(earlier=result)
        self.context.lock = Lock()
        self.throw(result)


def test_a_result_among_the_values_arrives_with_stand_ins():
    result = Rethrown.execute(size=2)
    arrived = sent(result)

    assert arrived.context.lock.type_name == "lock"
    assert arrived.chain[2].context.earlier == result.chain[1]


def test_each_pickle_tries_again_what_may_have_changed():
    result = Outer.execute(given=1)
    pickle.dumps(list(result.chain))

    result.context.lock = Lock()

    assert sent(result).context.lock.type_name == "lock"
    assert sent(result.chain).root.context.lock.type_name == "lock"


def test_a_pickle_tries_again_while_another_pickler_exists():
    result = Outer.execute(given=1)
    file = io.BytesIO()
    pickler = pickle.Pickler(file)
    pickler.dump(result)

    result.context.lock = Lock()

    assert sent(result).context.lock.type_name == "lock"
    pickler.dump(list(result.chain))
    del result.context.lock
    assert sent(result) == result
    file.seek(0)
    unpickler = pickle.Unpickler(file)
    assert unpickler.load() == result
    assert unpickler.load() == list(result.chain)


class BrokenProxy:
    """A lazy object that cannot be loaded."""

    @property
    def __class__(self):
        raise RuntimeError("not loaded")


def test_a_value_without_a_class_is_a_stand_in():
    result = Returning.execute(given=BrokenProxy())

    assert sent(result).context.given.type_name == "BrokenProxy"
    assert sent(result.chain).root.value.type_name == "BrokenProxy"


def test_a_deep_chain_is_pickled_without_repeating_its_parents():
    small, large = (len(pickle.dumps(Nested.execute(depth=n))) for n in (30, 60))

    assert large < 2.2 * small


class Nested(Task[None]):
    depth: int

    def work(self) -> None:
        if self.depth:
            Nested.execute(depth=self.depth - 1)
