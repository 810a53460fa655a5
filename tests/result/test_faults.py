"""What a failed task raises, and how it is caught."""

from __future__ import annotations

import asyncio

import pytest

from cmdx import CmdxError, DefinitionError, Fault, Status, Stop, Task, retry_on


class Pay(Task[int]):
    def work(self) -> int:
        self.context.asked = True
        self.fail("declined", code=402)


class PayByCard(Pay):
    pass


class Ship(Task[int]):
    def work(self) -> int:
        self.fail("no parcels")


class Checkout(Task[int]):
    def work(self) -> int:
        return Pay.execute_or_raise(self.context).value


class Throwing(Task[int]):
    def work(self) -> int:
        self.throw(Pay.execute(), step=2)
        return 1


class Shop(Task[int]):
    def work(self) -> int:
        self.throw(Throwing.execute())
        return 1


class Broken(Task[int]):
    def work(self) -> int:
        raise OSError("disk full")


class Relay(Task[int]):
    def work(self) -> int:
        self.throw(Broken.execute())
        return 1


# -- one class of fault per class of task ---------------------------------------


def test_every_task_class_has_a_fault_of_its_own():
    faults = {Task.Fault, Pay.Fault, PayByCard.Fault, Ship.Fault}

    assert len(faults) == 4
    assert all(issubclass(fault, Fault) for fault in faults)
    assert issubclass(Fault, CmdxError)


def test_faults_mirror_the_ancestry_of_their_tasks():
    assert issubclass(PayByCard.Fault, Pay.Fault)
    assert not issubclass(Pay.Fault, PayByCard.Fault)
    assert not issubclass(Ship.Fault, Pay.Fault)
    assert not issubclass(Pay.Fault, Ship.Fault)


def test_a_task_with_two_parents_has_a_fault_with_two_parents():
    class PayAndShip(Pay, Ship):
        pass

    assert issubclass(PayAndShip.Fault, Pay.Fault)
    assert issubclass(PayAndShip.Fault, Ship.Fault)
    with pytest.raises(Ship.Fault):
        PayAndShip.execute_or_raise()


def test_a_mixin_that_is_no_task_adds_no_fault():
    class Audited:
        pass

    class PayAudited(Audited, Pay):
        pass

    assert PayAudited.Fault.__bases__ == (Pay.Fault,)


def test_a_fault_is_named_after_its_task():
    assert Pay.Fault.__qualname__ == "Pay.Fault"
    assert Pay.Fault.__module__ == __name__


def test_a_task_may_define_its_fault_itself():
    class Charge(Pay):
        class Fault(Pay.Fault):
            code = 7

    class ChargeTwice(Charge):
        pass

    assert issubclass(ChargeTwice.Fault, Charge.Fault)
    with pytest.raises(Charge.Fault) as raised:
        Charge.execute_or_raise()
    assert type(raised.value) is Charge.Fault
    assert raised.value.code == 7


@pytest.mark.parametrize(
    ("bases", "fault"),
    [
        ((Task,), ValueError),
        ((Task,), 3),
        ((Task,), None),
        ((Task,), "Fault"),
        ((Pay,), Fault),
        ((Pay,), Ship.Fault),
        ((Pay, Ship), Pay.Fault),
    ],
)
def test_a_fault_that_would_not_be_caught_as_those_of_its_bases_is_refused(
    bases, fault
):
    names = ", ".join(
        "cmdx.Fault" if base is Task else f"{base.__name__}.Fault" for base in bases
    )

    with pytest.raises(DefinitionError, match=rf"Odd\.Fault .*class Fault\({names}\)"):
        type("Odd", bases, {"Fault": fault})


# -- in except ------------------------------------------------------------------


@pytest.mark.parametrize("caught", [PayByCard.Fault, Pay.Fault, Fault, CmdxError])
def test_except_catches_by_class_and_ancestors(caught):
    with pytest.raises(caught) as raised:
        PayByCard.execute_or_raise()

    assert type(raised.value) is PayByCard.Fault


def test_except_lets_the_faults_of_others_pass():
    with pytest.raises(Ship.Fault):
        try:
            Ship.execute_or_raise()
        except (Pay.Fault, PayByCard.Fault):
            pytest.fail("caught the fault of another task")


def test_a_coroutine_raises_the_same_fault():
    class Later(Task[int]):
        async def work(self) -> int:
            self.fail("too late")

    with pytest.raises(Later.Fault, match="too late"):
        asyncio.run(Later.aexecute_or_raise())


# -- in retry_on ----------------------------------------------------------------


def test_retry_on_a_fault_retries_after_that_task_failed(instant):
    @retry_on(Pay.Fault, limit=2)
    class Patient(Task[int]):
        def work(self) -> int:
            return PayByCard.execute_or_raise().value

    result = Patient.execute()

    assert result.retries == 2
    assert result.stopped is Stop.EXHAUSTED
    assert instant.pauses == [0.5, 0.5]


def test_retry_on_a_fault_leaves_the_faults_of_others_alone(instant):
    @retry_on(Ship.Fault, PayByCard.Fault)
    class Picky(Task[int]):
        def work(self) -> int:
            return Pay.execute_or_raise().value

    result = Picky.execute()

    assert result.retries == 0
    assert result.stopped is Stop.NOT_LISTED
    assert instant.pauses == []


def test_retry_on_fault_retries_any_of_them(instant):
    @retry_on(Fault, limit=1)
    class Stubborn(Task[int]):
        def work(self) -> int:
            task = Pay if self.attempt == 0 else Ship
            return task.execute_or_raise().value

    result = Stubborn.execute()

    assert result.retries == 1
    assert isinstance(result.cause, Ship.Fault)
    assert instant.pauses == [0.5]


# -- what it carries ------------------------------------------------------------


def test_a_fault_carries_result_task_context_and_chain():
    with pytest.raises(Pay.Fault) as raised:
        Pay.execute_or_raise(order=7)
    fault = raised.value

    assert fault.result.status is Status.FAILED
    assert fault.result.metadata == {"code": 402}
    assert fault.task is Pay
    assert fault.context == {"order": 7, "asked": True}
    assert list(fault.chain) == [fault.result]


def test_its_message_is_the_reason():
    with pytest.raises(Pay.Fault) as raised:
        Pay.execute_or_raise()

    assert str(raised.value) == "declined"


def test_the_value_of_a_failure_raises_a_fault_that_names_the_cure():
    result = Shop.execute()
    with pytest.raises(Pay.Fault) as raised:
        _ = result.value

    assert str(raised.value) == "declined"
    assert raised.value.__notes__[-1] == (
        "Shop failed and has no value. Check .success first, or use .value_or(default)."
    )


def test_its_message_names_the_task_when_there_is_no_reason():
    class Silent(Task[None]):
        def work(self) -> None:
            self.fail()

    with pytest.raises(Silent.Fault) as raised:
        Silent.execute_or_raise()

    assert str(raised.value) == f"{Silent.__qualname__} failed"


def test_a_thrown_failure_raises_the_fault_of_the_deepest_failure():
    with pytest.raises(Fault) as raised:
        Shop.execute_or_raise()
    fault = raised.value

    assert type(fault) is Pay.Fault
    assert fault.task is Pay
    assert fault.result.task is Pay
    assert fault.chain.root.task is Shop
    assert [result.task for result in fault.chain] == [Shop, Pay, Throwing]


def test_a_fault_has_the_exception_of_the_deepest_failure_as_its_cause():
    with pytest.raises(Broken.Fault, match="disk full") as raised:
        Relay.execute_or_raise()

    assert isinstance(raised.value.__cause__, OSError)
    assert raised.value.__cause__ is raised.value.result.cause
    assert raised.value.__suppress_context__


def test_a_fault_of_a_halt_has_no_cause():
    with pytest.raises(Pay.Fault) as raised:
        Pay.execute_or_raise()

    assert raised.value.__cause__ is None
    assert raised.value.__context__ is None


def test_errors_of_a_task_become_its_fault():
    class Checked(Task[None]):
        def work(self) -> None:
            self.errors.add("name", "is empty")

    with pytest.raises(Checked.Fault, match="name is empty"):
        Checked.execute_or_raise()


def test_a_skipped_task_raises_nothing():
    class Idle(Task[None]):
        def work(self) -> None:
            self.skip("nothing to do")

    assert Idle.execute_or_raise().skipped


# -- a fault inside another task ------------------------------------------------


def test_a_fault_that_leaves_work_is_the_cause_and_its_result_the_origin():
    result = Checkout.execute()

    assert result.failed
    assert type(result.cause) is Pay.Fault
    assert result.origin == result.cause.result
    assert result.origin.task is Pay
    assert result.caused_failure == result.origin
    assert result.is_thrown_failure
    assert result.reason == "declined"


def test_a_fault_passes_through_strict_tasks_as_the_same_object():
    faults = []

    class Watching(Task[int]):
        def work(self) -> int:
            try:
                return Checkout.execute_or_raise().value
            except Fault as fault:
                faults.append(fault)
                raise

    with pytest.raises(Pay.Fault) as raised:
        Watching.execute_or_raise()

    assert raised.value is faults[0]
    assert raised.value.result.task is Pay


def test_a_fault_that_is_caught_in_work_is_forgotten():
    class Forgiving(Task[str]):
        def work(self) -> str:
            try:
                return str(Pay.execute_or_raise().value)
            except Pay.Fault as fault:
                return f"invoice instead: {fault.result.reason}"

    result = Forgiving.execute()

    assert result.value == "invoice instead: declined"
    assert result.origin is None


def test_throw_adds_metadata_and_keeps_reason_and_origin():
    result = Throwing.execute()

    assert result.reason == "declined"
    assert result.metadata == {"step": 2}
    assert result.origin.metadata == {"code": 402}


def test_throw_does_nothing_unless_the_result_failed():
    class Idle(Task[None]):
        def work(self) -> None:
            self.skip("nothing to do")

    class Passing(Task[int]):
        def work(self) -> int:
            self.throw(Idle.execute())
            return 5

    assert Passing.execute().value == 5
