"""What type checkers say about running tasks; checked by them, never run."""

from __future__ import annotations

from datetime import datetime
from typing import Any, assert_never, assert_type

import cmdx
from cmdx import (
    Attempt,
    Chain,
    Context,
    Errors,
    Fault,
    Outcome,
    Result,
    State,
    Status,
    Stop,
    Task,
)
from cmdx.testing import assert_failed, assert_skipped, assert_success


class Receipt:
    amount: int = 0


class Charge(Task[Receipt]):
    """Takes nothing that a checker could know of."""

    def work(self) -> Receipt:
        if self.attempt > 2:
            self.skip("enough")
        if not self.errors:
            self.errors.add("card", "is missing", "blank")
        return Receipt()


class Cleanup(Task[None]):
    async def work(self) -> None: ...


# -- running --------------------------------------------------------------------


assert_type(Charge.execute(), Result[Receipt])
assert_type(Charge.execute_or_raise(), Result[Receipt])
assert_type(Charge().run(), Result[Receipt])
assert_type(Charge.execute_or_raise().value, Receipt)

wrong_value: str = Charge.execute().value  # type: ignore[assignment]
wrong_result: Result[int] = Charge.execute()  # type: ignore[assignment]


async def awaited() -> None:
    assert_type(await Charge.aexecute(), Result[Receipt])
    assert_type(await Charge.aexecute_or_raise(), Result[Receipt])
    assert_type(await Cleanup.aexecute(), Result[None])
    assert_type(await Cleanup().arun(), Result[None])

    assert_type((await Charge.aexecute()).value, Receipt)
    Charge.aexecute().value  # type: ignore[attr-defined]  # noqa: B018


async def mistyped() -> Result[str]:
    return await Charge.aexecute()  # type: ignore[return-value]


async def forgotten_await() -> Result[Receipt]:
    return Charge.aexecute()  # type: ignore[return-value]


def shared(context: Context, task: Charge, result: Result[int]) -> None:
    assert_type(Charge.execute(context), Result[Receipt])
    assert_type(Charge.execute(task), Result[Receipt])
    assert_type(Charge.execute(result), Result[Receipt])
    assert_type(Charge.execute({"order": 7}), Result[Receipt])
    assert_type(Charge.execute_or_raise(context), Result[Receipt])
    assert_type(Charge.execute(context, order=7), Result[Receipt])
    assert_type(Charge.execute_or_raise(task, order=7), Result[Receipt])

    Charge.execute(7)  # type: ignore[call-overload]
    Charge.execute("order")  # type: ignore[call-overload]


def generic(task: type[Task[int]]) -> int:
    result = task.execute()
    assert_type(result, Result[int])
    return result.value


# -- reading a result -----------------------------------------------------------


def read(result: Result[Receipt]) -> None:
    assert_type(result.value, Receipt)
    assert_type(result.value_or(None), Receipt | None)
    assert_type(result.value_or(0), Receipt | int)
    assert_type(result.value_or(Receipt()), Receipt)
    assert_type(result.or_raise(), Result[Receipt])
    assert_type(result.task, type[Task[Receipt]])
    assert_type(result.tid, str)
    assert_type(result.context, Context)
    assert_type(result.errors, Errors)
    assert_type(result.tags, tuple[str, ...])
    assert_type(result.status, Status)
    assert_type(result.state, State)
    assert_type(result.success, bool)
    assert_type(result.reason, str | None)
    assert_type(result.cause, BaseException | None)
    assert_type(result.origin, Result[Any] | None)
    assert_type(result.caused_failure, Result[Any] | None)
    assert_type(result.error, BaseException | str | None)
    assert_type(result.retries, int)
    assert_type(result.attempts, tuple[Attempt, ...])
    assert_type(result.attempts[0].pause, float | None)
    assert_type(result.stopped, Stop | None)
    assert_type(result.duration, float)
    assert_type(result.started_at, datetime)
    assert_type(result.rollback_error, BaseException | None)
    assert_type(result.replaced, Outcome | None)
    assert_type(result.halted_at, str | None)
    assert_type(result.compensated, tuple[Result[Any], ...])
    assert_type(result.chain, Chain)
    assert_type(result.chain[0], Result[Any])
    assert_type(result.chain[1:], tuple[Result[Any], ...])
    assert_type(result.chain.root, Result[Any] | None)
    assert_type(result.parent, Result[Any] | None)
    assert_type(result.depth, int)
    assert_type(result.to_dict(), dict[str, Any])
    assert_type(result.to_json(), str)

    result.status = Status.FAILED  # type: ignore[misc]
    result.metadata["code"] = 1  # type: ignore[index]
    result.valeu  # type: ignore[attr-defined]  # noqa: B018


def covariant(result: Result[bool]) -> Result[int]:
    return result


def not_contravariant(result: Result[int]) -> Result[bool]:
    return result  # type: ignore[return-value]


def matched(result: Result[Receipt]) -> str:
    match result:
        case Result(status=Status.SUCCESS):
            assert_type(result.value, Receipt)
            return "paid"
        case Result(status=Status.SKIPPED, reason=reason):
            assert_type(reason, str | None)
            return "skipped"
        case Result(cause=TimeoutError() as error):
            assert_type(error, TimeoutError)
            return "too slow"
        case _:
            return "failed"


def exhausted(status: Status) -> str:
    match status:
        case Status.SUCCESS:
            return "paid"
        case Status.SKIPPED:
            return "skipped"
        case Status.FAILED:
            return "failed"
        case _:
            assert_never(status)


def forgotten(status: Status) -> str:
    match status:
        case Status.SUCCESS | Status.SKIPPED:
            return "fine"
        case _:
            assert_never(status)  # type: ignore[arg-type]


# -- halting --------------------------------------------------------------------


class Halting(Task[int]):
    def work(self) -> int:
        if self.context.get("cached"):
            self.succeed("cached", value=3, hits=1)
        if self.context.get("late"):
            self.fail("too late", code=504)
        self.skip("nothing to do")

    def thrown(self, result: Result[str]) -> int:
        self.throw(result, step=2)
        return 1

    def reasons(self) -> int:
        if self.context.get("declined"):
            self.fail(ValueError("declined"), code=51)
        if self.context.get("known"):
            self.skip(reason="known", code=1)
        self.fail(reason="broken", code=3)

    def mistyped(self, result: int) -> None:
        self.throw(result)  # type: ignore[arg-type]


class Numbered(Task[int]):
    def work(self) -> int:
        self.fail(404)  # type: ignore[arg-type]


class Returning(Task[int]):
    def work(self) -> int:
        return "three"  # type: ignore[return-value]


# -- faults ---------------------------------------------------------------------


def caught() -> Receipt | None:
    try:
        return Charge.execute_or_raise().value
    except Charge.Fault as fault:
        assert_type(fault.result, Result[Any])
        assert_type(fault.task, type[Task[Any]])
        assert_type(fault.context, Context)
        assert_type(fault.chain, Chain)
        return None
    except Fault as fault:
        assert_type(fault, Fault)
        raise


# -- retrying a callable --------------------------------------------------------


class Calling(Task[int]):
    def work(self) -> int:
        assert_type(self.retry(lambda: "text"), str)
        assert_type(self.retry(int, max_attempts=2, base_delay=0.5), int)
        self.retry(int, attempts=3)  # type: ignore[call-arg]
        self.retry("not callable")  # type: ignore[arg-type]
        return self.retry(len)

    async def later(self) -> str:
        async def fetch() -> str:
            return "text"

        return assert_type(await self.aretry(fetch), str)


# -- assertions -----------------------------------------------------------------


def asserted(result: Result[Receipt]) -> None:
    assert_type(assert_success(result, value=Receipt()), Result[Receipt])
    assert_success(result, context={"order": 7}, outputs={"number": 7}, duration=2)
    assert_skipped(result, rolled_back=False, duration=(0, 2.5))
    assert_failed(result, compensated=[Charge, Cleanup], cause=TimeoutError)
    assert_failed(result, compensated=Charge)  # type: ignore[arg-type]
    assert_failed(result, rolled_back="yes")  # type: ignore[arg-type]
    assert_success(result, duration="2 s")  # type: ignore[arg-type]
    assert_skipped(result, value=3)  # type: ignore[call-arg]


def the_package() -> None:
    assert_type(cmdx.current_task(), Task[Any] | None)
    assert_type(cmdx.__version__, str)
    _ = cmdx.Taks  # type: ignore[attr-defined]
