"""Results, chains and exceptions travel between processes."""

from __future__ import annotations

import copy
import pickle
from threading import Lock

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
    Task,
    UnknownContextKey,
    UnknownEntryError,
    clock,
    middleware,
    retriers,
    retry_on,
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
    (Unyielding.execute, MiddlewareError),
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


# -- settled in another time ----------------------------------------------------


def test_durations_do_not_go_on_after_the_journey():
    parcel = pickle.dumps(Good.execute())

    with clock.use(clock.Clock()):
        first, second = pickle.loads(parcel), pickle.loads(parcel)

    assert first.duration == second.duration
    assert first.started_at == second.started_at
