from __future__ import annotations

import asyncio
import sys
import warnings
from contextlib import suppress
from contextvars import copy_context
from threading import Barrier, Event, Thread

import pytest

from cmdx import DefinitionError, Task, clock, middleware, required, retry_on
from cmdx.middlewares import Breaker, Phase, RateLimit, circuits

pytestmark = pytest.mark.usefixtures("still")


class Down(Exception):
    pass


def task_with(breaker):
    """Make a task that does what its input ``how`` says."""

    @middleware(breaker)
    class Call(Task[str]):
        def work(self) -> str:
            how = self.context.get("how")
            if how == "fail":
                self.fail("declined")
            if how == "skip":
                self.skip("nothing to do")
            if isinstance(how, BaseException):
                raise how
            return "done"

    return Call


def failing(task, times):
    return [task.execute(how=Down()) for _ in range(times)]


def is_refused(result):
    return "circuit" in result.metadata


# -- closed ---------------------------------------------------------------------


def test_failures_in_a_row_open_the_circuit(name):
    call = task_with(Breaker(name, failures=3))

    assert [is_refused(result) for result in failing(call, 5)] == [
        *(False, False, False),
        *(True, True),
    ]
    assert circuits[name].phase is Phase.OPEN


def test_a_success_ends_the_row(name):
    call = task_with(Breaker(name, failures=3))
    failing(call, 2)
    call.execute()
    failing(call, 2)

    assert circuits[name].phase is Phase.CLOSED


def test_without_options_five_failures_open_it_for_thirty_seconds(name):
    call = task_with(Breaker(name))
    results = failing(call, 6)

    assert list(map(is_refused, results)) == [False] * 5 + [True]
    assert results[-1].metadata["retry_after"] == 30.0


@pytest.mark.parametrize("how", ["skip", None])
def test_what_does_not_fail_does_not_count(name, how):
    call = task_with(Breaker(name, failures=1))
    call.execute(how=how)

    assert circuits[name].phase is Phase.CLOSED


def test_a_skip_does_not_end_the_row(name):
    call = task_with(Breaker(name, failures=2))
    failing(call, 1)
    call.execute(how="skip")
    failing(call, 1)

    assert circuits[name].phase is Phase.OPEN


def test_a_failure_before_work_says_nothing_about_the_dependency(name):
    @middleware(Breaker(name, failures=1))
    class Pay(Task[None]):
        amount: int = required()

        def work(self) -> None: ...

    assert Pay.execute({"amount": "much"}).failed
    assert circuits[name].phase is Phase.CLOSED


def test_the_refusal_of_an_inner_middleware_does_not_count(name):
    @middleware(Breaker(name, failures=1), RateLimit(name, limit=1))
    class Call(Task[None]):
        def work(self) -> None: ...

    assert [Call.execute().status for _ in range(3)] == ["success", "failed", "failed"]
    assert circuits[name].phase is Phase.CLOSED


def test_a_run_counts_once_however_often_it_was_retried(name):
    @middleware(Breaker(name, failures=2))
    @retry_on(Down, limit=5, delay=0)
    class Call(Task[None]):
        def work(self) -> None:
            raise Down

    assert Call.execute().retries == 5
    assert circuits[name].phase is Phase.CLOSED


def test_a_ratio_of_failures_opens_it(name):
    call = task_with(Breaker(name, ratio=0.5, per=10.0, minimum=4))
    for how in (None, Down(), None):
        call.execute(how=how)
    assert circuits[name].phase is Phase.CLOSED

    call.execute(how=Down())
    assert circuits[name].phase is Phase.OPEN


def test_a_ratio_is_not_looked_at_before_there_are_enough_calls(name):
    call = task_with(Breaker(name, ratio=0.1, minimum=10))
    failing(call, 9)
    assert circuits[name].phase is Phase.CLOSED

    failing(call, 1)
    assert circuits[name].phase is Phase.OPEN


def test_calls_that_have_left_the_window_do_not_count(still, name):
    call = task_with(Breaker(name, ratio=0.5, per=10.0, minimum=4))
    failing(call, 3)
    still.seconds += 10.0
    failing(call, 3)

    assert circuits[name].phase is Phase.CLOSED


def test_failures_in_a_row_and_a_ratio_can_be_given_together(name):
    call = task_with(Breaker(name, failures=2, ratio=0.5, minimum=100))
    failing(call, 2)

    assert circuits[name].phase is Phase.OPEN


def test_with_a_ratio_alone_a_row_does_not_open_it(name):
    call = task_with(Breaker(name, ratio=1.0, minimum=100))
    failing(call, 99)

    assert circuits[name].phase is Phase.CLOSED


# -- what counts ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("counts", "how", "phase"),
    [
        (Down, Down(), "open"),
        (Down, KeyError(), "closed"),
        ((Down, TimeoutError), TimeoutError(), "open"),
        (Exception, Down(), "open"),
        (Down, "fail", "closed"),
        (None, "fail", "open"),
        (lambda result: result.reason == "declined", "fail", "open"),
        (lambda result: result.reason == "declined", Down(), "closed"),
    ],
)
def test_counts_tells_which_failures_open_it(name, counts, how, phase):
    task_with(Breaker(name, failures=1, counts=counts)).execute(how=how)

    assert circuits[name].phase.value == phase


def test_a_failure_that_does_not_count_is_an_answer_and_ends_the_row(name):
    call = task_with(Breaker(name, failures=2, counts=Down))
    failing(call, 1)
    call.execute(how="fail")
    failing(call, 1)

    assert circuits[name].phase is Phase.CLOSED


def test_the_exception_of_a_nested_task_is_looked_for(name):
    class Inner(Task[None]):
        def work(self) -> None:
            raise Down

    @middleware(Breaker(name, failures=1, counts=Down))
    class Outer(Task[None]):
        def work(self) -> None:
            self.throw(Inner.execute())

    assert Outer.execute().failed
    assert circuits[name].phase is Phase.OPEN


def test_a_predicate_is_asked_about_failed_results_alone(name):
    asked = []
    call = task_with(Breaker(name, counts=asked.append))
    for how in (None, "skip", "fail"):
        call.execute(how=how)

    assert [result.status.value for result in asked] == ["failed"]


def test_a_predicate_that_raises_fails_the_run_and_frees_its_probe(still, name):
    broken = [True]

    def counts(_):
        if broken:
            raise ZeroDivisionError
        return True

    call = task_with(Breaker(name, failures=1, recovery=1.0, counts=counts))
    circuits[name].open()
    still.seconds += 1.0

    assert isinstance(call.execute(how=Down()).cause, ZeroDivisionError)
    broken.clear()
    assert not is_refused(call.execute())


# -- open -----------------------------------------------------------------------


def test_a_refusal_is_a_failure_with_code_and_the_time_that_remains(still, name):
    call = task_with(Breaker(name, failures=1, recovery=30.0))
    failing(call, 1)
    still.seconds += 10.0
    result = call.execute()

    assert result.failed
    assert result.reason == f"the circuit {name!r} is open"
    assert dict(result.metadata) == {
        "circuit": name,
        "code": "UNAVAILABLE",
        "retry_after": 20.0,
    }
    assert result.stopped is None


def test_the_code_can_be_chosen(name):
    call = task_with(Breaker(name, failures=1, code="PAYMENTS_DOWN"))

    assert failing(call, 2)[1].metadata["code"] == "PAYMENTS_DOWN"


def test_refusals_do_not_keep_it_open(still, name):
    call = task_with(Breaker(name, failures=1, recovery=3.0))
    failing(call, 1)
    for _ in range(3):
        assert is_refused(call.execute())
        still.seconds += 1.0

    assert call.execute().success


def test_waiting_for_retry_after_is_long_enough(still, name):
    call = task_with(Breaker(name, failures=1, recovery=0.7))
    for start in (0.1, 1e5 + 0.3, 3.3e7):
        circuits[name].close()
        still.seconds = start
        failing(call, 1)
        still.seconds += 0.21
        still.seconds += call.execute().metadata["retry_after"]
        assert not is_refused(call.execute(how=Down()))


def test_a_guided_caller_waits_until_it_may_try(name):
    inner = task_with(Breaker(name, failures=1, recovery=20.0))
    failing(inner, 1)

    @retry_on(inner.Fault, guided=True, delay=0.1)
    class Caller(Task[str]):
        def work(self) -> str:
            return inner.execute_or_raise().value

    result = Caller.execute()
    assert result.value == "done"
    assert [attempt.pause for attempt in result.attempts] == [20.0, None]


def test_a_call_that_began_before_the_circuit_opened_does_not_count_after(still, name):
    breaker = Breaker(name, failures=2, recovery=5.0)
    ticket, _ = breaker.circuit.ask()
    failing(task_with(breaker), 2)
    still.seconds += 5.0
    probe, _ = breaker.circuit.ask()
    breaker.circuit.tell(ticket, breaker.verdict_on(task_with(breaker).execute()))

    assert probe is not None
    assert circuits[name].phase is Phase.HALF_OPEN


# -- half open ------------------------------------------------------------------


def opened(breaker, still):
    """Open the circuit and wait until it lets probes through."""
    breaker.circuit.open()
    still.seconds += breaker.circuit.thresholds.recovery


def test_a_probe_that_goes_well_closes_it(still, name):
    breaker = Breaker(name, recovery=5.0)
    opened(breaker, still)

    assert task_with(breaker).execute().success
    assert circuits[name].phase is Phase.CLOSED


def test_a_probe_that_fails_opens_it_for_the_whole_time_again(still, name):
    breaker = Breaker(name, failures=5, recovery=5.0)
    opened(breaker, still)
    call = task_with(breaker)
    still.seconds += 100.0

    assert not is_refused(call.execute(how=Down()))
    assert call.execute().metadata["retry_after"] == 5.0


def test_after_it_closed_failures_are_counted_from_zero(still, name):
    call = task_with(Breaker(name, failures=3, recovery=5.0))
    failing(call, 3)
    still.seconds += 5.0
    call.execute()
    failing(call, 2)

    assert circuits[name].phase is Phase.CLOSED


def test_several_probes_must_all_go_well(still, name):
    breaker = Breaker(name, recovery=5.0, probes=3)
    opened(breaker, still)
    call = task_with(breaker)
    phases = []
    for _ in range(3):
        call.execute()
        phases.append(circuits[name].phase.value)

    assert phases == ["half_open", "half_open", "closed"]


@pytest.mark.parametrize("how", ["skip", KeyboardInterrupt()])
def test_another_probe_replaces_one_without_a_verdict(still, name, how):
    breaker = Breaker(name, recovery=5.0)
    opened(breaker, still)
    call = task_with(breaker)
    with suppress(KeyboardInterrupt):
        call.execute(how=how)

    assert circuits[name].phase is Phase.HALF_OPEN
    assert call.execute().success


@pytest.mark.parametrize("probes", [1, 3])
def test_no_more_probes_than_allowed_run_at_once(still, name, in_threads, probes):
    breaker = Breaker(name, recovery=5.0, probes=probes)
    opened(breaker, still)
    refusals, enough = [], Event()
    total = 16

    @middleware(breaker)
    class Probe(Task[None]):
        def work(self) -> None:
            assert enough.wait(10)

    def call(_):
        result = Probe.execute()
        if is_refused(result):
            refusals.append(result)
            if len(refusals) == total - probes:
                enough.set()
        return result

    results = in_threads(call, total)
    assert sum(result.success for result in results) == probes
    assert {result.metadata["retry_after"] for result in refusals} == {5.0}
    assert circuits[name].phase is Phase.CLOSED


def test_a_probe_that_does_not_end_is_replaced(still, name):
    breaker = Breaker(name, recovery=5.0)
    opened(breaker, still)
    lost, _ = breaker.circuit.ask()
    call = task_with(breaker)
    assert is_refused(call.execute())

    still.seconds += 5.0
    assert lost is not None
    assert call.execute().success


def test_a_slow_probe_that_ends_later_counts(still, name):
    breaker = Breaker(name, recovery=5.0)
    opened(breaker, still)

    @middleware(breaker)
    class Slow(Task[None]):
        def work(self) -> None:
            still.seconds += 60.0
            other.append(breaker.circuit.ask().ticket)

    other = []
    assert Slow.execute().success
    assert other != [None]
    assert circuits[name].phase is Phase.CLOSED


def test_a_lost_probe_does_not_free_the_place_of_another(still, name):
    breaker = Breaker(name, recovery=5.0)
    circuit = breaker.circuit
    opened(breaker, still)
    skipped = breaker.verdict_on(task_with(Breaker("any")).execute(how="skip"))
    lost, _ = circuit.ask()
    still.seconds += 5.0
    assert circuit.ask().ticket is not None

    circuit.tell(lost, skipped)
    assert circuit.ask().ticket is None


# -- shared ---------------------------------------------------------------------


def test_tasks_that_give_the_same_name_share_the_circuit(name):
    charge = task_with(Breaker(name, failures=2))
    refund = task_with(Breaker(name))
    failing(charge, 1)
    failing(refund, 1)

    assert is_refused(charge.execute())
    assert is_refused(refund.execute())


def test_another_name_is_another_circuit(name):
    failing(task_with(Breaker(name, failures=1)), 1)

    assert task_with(Breaker(f"{name}, other")).execute().success


def test_the_options_may_come_from_whoever_names_it_later(name):
    early = task_with(Breaker(name))
    Breaker(name, failures=1)
    failing(early, 1)

    assert circuits[name].phase is Phase.OPEN


def test_the_same_options_can_be_given_again(name):
    first = Breaker(name, failures=3, recovery=5.0)
    second = Breaker(name, failures=3, recovery=5.0)

    assert first.circuit is second.circuit


def test_other_options_replace_the_earlier_ones_with_a_warning(name):
    call = task_with(Breaker(name, failures=3))
    failing(call, 1)
    with pytest.warns(UserWarning, match="declared again with other options") as seen:
        Breaker(name, failures=2)

    assert seen[0].filename == __file__
    assert f"Breaker {name!r}" in str(seen[0].message)
    failing(call, 1)  # the failure before the change counts as well
    assert circuits[name].phase is Phase.OPEN


def test_a_shorter_recovery_counts_for_a_circuit_that_is_open(name):
    call = task_with(Breaker(name, failures=1, recovery=30.0))
    failing(call, 1)
    with pytest.warns(UserWarning, match="declared again"):
        Breaker(name, failures=1, recovery=5.0)

    assert call.execute().metadata["retry_after"] == 5.0


def test_where_the_warning_is_an_error_the_earlier_options_stay(name):
    call = task_with(Breaker(name, failures=1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="declared again"):
            Breaker(name, failures=2)
    failing(call, 1)

    assert circuits[name].phase is Phase.OPEN


def test_a_forgotten_name_gets_a_new_circuit(name):
    old = Breaker(name, failures=3).circuit
    circuits.forget(name)

    assert Breaker(name, failures=4).circuit is not old
    assert name in list(circuits)


def test_a_task_inside_one_that_passed_is_part_of_it(still, name):
    breaker = Breaker(name, failures=2, recovery=5.0)
    inner = task_with(breaker)

    @middleware(breaker)
    class Outer(Task[str]):
        def work(self) -> str:
            return inner.execute_or_raise(how=self.context.get("how")).value

    Outer.execute(how=Down())
    assert circuits[name].phase is Phase.CLOSED  # one failure, not two

    opened(breaker, still)
    assert Outer.execute().success
    assert circuits[name].phase is Phase.CLOSED


def test_a_circuit_can_be_opened_and_closed_by_hand(name):
    call = task_with(Breaker(name))
    circuits[name].open()
    assert is_refused(call.execute())

    circuits[name].close()
    assert call.execute().success


def test_what_a_replaced_clock_did_does_not_last_longer_than_recovery(still, name):
    call = task_with(Breaker(name, failures=1, recovery=5.0))
    still.seconds += 1e6
    failing(call, 1)
    still.seconds = 0.0
    assert call.execute().metadata["retry_after"] == 5.0

    still.seconds = 5.0
    assert call.execute().success


def test_a_window_of_a_replaced_clock_is_forgotten(still, name):
    call = task_with(Breaker(name, ratio=0.5, minimum=4))
    failing(call, 3)
    still.seconds = 0.0
    failing(call, 1)

    assert circuits[name].phase is Phase.CLOSED


def test_totals_are_right_under_threads(name):
    threads, runs = 8, 200
    call = task_with(Breaker(name, failures=threads * runs, recovery=3600.0))
    together = Barrier(threads)

    def many():
        together.wait()
        failing(call, runs)

    workers = [Thread(target=many) for _ in range(threads)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    finally:
        sys.setswitchinterval(before)

    assert circuits[name].phase is Phase.OPEN  # not one failure was lost
    assert is_refused(call.execute())


# -- background tasks -----------------------------------------------------------


def test_a_coroutine_that_outlives_the_run_asks_the_circuit_again(name):
    breaker = Breaker(name, failures=3)
    call = task_with(breaker)

    @middleware(breaker)
    class Connect(Task[None]):
        async def work(self) -> None:
            self.context.poller = asyncio.create_task(poll(self.context.ended))

    async def poll(ended):
        await ended.wait()
        return [await call.aexecute(how=Down()) for _ in range(5)]

    async def main():
        ended = asyncio.Event()
        result = await Connect.aexecute(ended=ended)
        ended.set()
        return await result.context.poller

    refused = [is_refused(result) for result in asyncio.run(main())]
    assert refused == [False, False, False, True, True]


def test_a_thread_that_outlives_the_run_asks_the_circuit_again(name):
    breaker = Breaker(name, failures=2)
    call, ended, results = task_with(breaker), Event(), []

    def poll():
        assert ended.wait(10)
        results.extend(failing(call, 3))

    @middleware(breaker)
    class Connect(Task[None]):
        def work(self) -> None:
            thread = Thread(target=copy_context().run, args=(poll,))
            thread.start()
            self.context.thread = thread

    thread = Connect.execute().context.thread
    ended.set()
    thread.join()

    assert list(map(is_refused, results)) == [False, False, True]


def test_a_coroutine_is_part_of_the_run_while_it_is_running(still, name):
    breaker = Breaker(name, recovery=5.0)
    opened(breaker, still)
    call = task_with(breaker)

    @middleware(breaker)
    class Probe(Task[bool]):
        async def work(self) -> bool:
            inner = await asyncio.create_task(call.aexecute())
            return is_refused(inner)

    assert asyncio.run(Probe.aexecute()).value is False
    assert circuits[name].phase is Phase.CLOSED


def test_a_chain_of_background_coroutines_does_not_pile_anything_up(name):
    @middleware(Breaker(name))
    class Next(Task[None]):
        async def work(self) -> None:
            if self.context.left:
                following = start(self.context.left - 1, self.context.sizes)
                self.context.following = asyncio.create_task(following)

    async def start(left, sizes):
        await asyncio.sleep(0)  # until the run that started it has ended
        sizes.append(sum(len(v) for v in copy_context().values() if type(v) is tuple))
        result = await Next.aexecute(left=left, sizes=sizes)
        if left:
            await result.context.following

    sizes = []
    asyncio.run(start(9, sizes))
    assert len(set(sizes[1:])) == 1


# -- async ----------------------------------------------------------------------


def async_task(breaker):
    @middleware(breaker)
    class Call(Task[None]):
        async def work(self) -> None:
            if self.context.get("how"):
                raise self.context.how
            await self.context.until.wait()

    return Call


def test_an_async_task_is_guarded_alike(name):
    call = async_task(Breaker(name, failures=1))

    async def both():
        return [await call.aexecute(how=Down()) for _ in range(2)]

    assert list(map(is_refused, asyncio.run(both()))) == [False, True]


def test_another_probe_replaces_a_cancelled_one(still, name):
    breaker = Breaker(name, recovery=5.0)
    opened(breaker, still)
    call = async_task(breaker)

    async def probe():
        until = asyncio.Event()
        first = asyncio.create_task(call.aexecute(until=until))
        await asyncio.sleep(0)
        second = await call.aexecute(until=until)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        until.set()
        return second, await call.aexecute(until=until)

    second, third = asyncio.run(probe())
    assert is_refused(second)
    assert third.success


# -- misuse ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"failures": 0}, "failures must be a whole number"),
        ({"failures": True}, "failures"),
        ({"failures": 2.0}, "failures"),
        ({"ratio": 0}, "ratio must be above 0"),
        ({"ratio": 1.1}, "ratio"),
        ({"ratio": float("nan")}, "ratio"),
        ({"ratio": True}, "ratio"),
        ({"ratio": "0.5"}, "ratio"),
        ({"per": 0}, "per must be a finite number of seconds"),
        ({"minimum": 0}, "minimum"),
        ({"recovery": 0}, "recovery"),
        ({"recovery": float("inf")}, "recovery"),
        ({"recovery": "1"}, "recovery"),
        ({"probes": 0}, "probes"),
        ({"counts": 3}, "counts must be exception classes or a function"),
        ({"counts": ()}, "counts"),
        ({"counts": int}, "counts"),
        ({"counts": (Down, 3)}, "counts"),
    ],
)
def test_wrong_options_are_refused_when_it_is_made(name, options, said):
    with pytest.raises(DefinitionError, match=said):
        Breaker(name, **options)
    assert name not in circuits


@pytest.mark.parametrize("wrong", ["", None, 7])
def test_a_breaker_needs_a_name(wrong):
    with pytest.raises(DefinitionError, match="Breaker: name must be a non-empty str"):
        Breaker(wrong)


def test_it_shows_its_name_and_phase(name):
    breaker = Breaker(name)

    assert repr(breaker) == f"Breaker({name!r})"
    assert repr(breaker.circuit) == f"<Circuit {name!r}: closed>"


def test_real_time_opens_the_way_for_a_probe(name):
    class Later(clock.Clock):
        """Real time, some seconds ahead."""

        def monotonic(self) -> float:
            return clock.Clock.monotonic() + wait

    call = task_with(Breaker(name, failures=1, recovery=3600.0))
    with clock.use(clock.Clock()):
        failing(call, 1)
        wait = call.execute().metadata["retry_after"]

    assert 0 < wait <= 3600.0
    with clock.use(Later()):
        assert call.execute().success
