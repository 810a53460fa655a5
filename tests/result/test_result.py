"""What a result says about a run."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from cmdx import (
    Context,
    Errors,
    Fault,
    NoValueError,
    Result,
    State,
    Status,
    Stop,
    Task,
    before_execution,
    middleware,
    on_failed,
    retry_on,
)


class Good(Task[int]):
    def work(self) -> int:
        return 3


class Idle(Task[int]):
    def work(self) -> int:
        self.skip("nothing to do", code="idle")


class Bad(Task[int]):
    def work(self) -> int:
        self.fail("no stock", code=404)


class Broken(Task[int]):
    def work(self) -> int:
        raise ValueError("no luck")


class Inner(Task[int]):
    def work(self) -> int:
        self.fail("too deep")


class Middle(Task[int]):
    def work(self) -> int:
        self.throw(Inner.execute())
        return 1


class Outer(Task[int]):
    def work(self) -> int:
        self.throw(Middle.execute())
        return 1


EVERY_OUTCOME = pytest.mark.parametrize("task", [Good, Idle, Bad, Broken, Outer])


# -- identity -------------------------------------------------------------------


def test_it_names_the_class_that_was_run():
    result = Good.execute()

    assert result.task is Good
    assert result.type == "Task"


def test_its_tid_is_the_id_the_task_had_while_it_ran():
    class Ids(Task[str]):
        def work(self) -> str:
            return self.tid

    result = Ids.execute()

    assert result.tid == result.value
    assert UUID(result.tid).version == 7


def test_its_context_is_the_one_the_task_worked_on():
    class Writing(Task[None]):
        def work(self) -> None:
            self.context.written = True

    shared = Context(read=1)
    result = Writing.execute(shared)

    assert result.context is shared
    assert result.context == {"read": 1, "written": True}


def test_its_errors_are_those_the_task_collected():
    class Checking(Task[None]):
        def work(self) -> None:
            self.errors.add("name", "is empty", "blank")

    result = Checking.execute()

    assert isinstance(result.errors, Errors)
    assert result.errors.to_dict() == {"name": ["is empty"]}
    assert result.failed
    assert result.reason == "name is empty"


def test_errors_are_empty_when_there_was_nothing_to_complain_about():
    assert len(Good.execute().errors) == 0


def test_its_tags_are_those_of_the_class_and_its_ancestors():
    class Parent(Task[None], tags=("billing",)):
        def work(self) -> None: ...

    class Child(Parent, tags=("slow", "billing")):
        pass

    assert Child.execute().tags == ("billing", "slow")
    assert Parent.execute().tags == ("billing",)
    assert Good.execute().tags == ()


# -- outcome --------------------------------------------------------------------

PREDICATES = ("success", "skipped", "failed", "complete", "interrupted", "ok", "ko")


@pytest.mark.parametrize(
    ("task", "status", "state", "true"),
    [
        (Good, Status.SUCCESS, State.COMPLETE, {"success", "complete", "ok"}),
        (
            Idle,
            Status.SKIPPED,
            State.INTERRUPTED,
            {"skipped", "interrupted", "ok", "ko"},
        ),
        (Bad, Status.FAILED, State.INTERRUPTED, {"failed", "interrupted", "ko"}),
        (Broken, Status.FAILED, State.INTERRUPTED, {"failed", "interrupted", "ko"}),
    ],
)
def test_status_state_and_predicates_tell_the_same_story(task, status, state, true):
    result = task.execute()

    assert result.status is status
    assert result.state is state
    assert {name for name in PREDICATES if getattr(result, name) is True} == true
    assert {name for name in PREDICATES if getattr(result, name) is False} == (
        set(PREDICATES) - true
    )


def test_status_and_state_are_texts():
    assert (Status.SUCCESS, Status.SKIPPED, Status.FAILED) == (
        "success",
        "skipped",
        "failed",
    )
    assert (State.COMPLETE, State.INTERRUPTED) == ("complete", "interrupted")


@pytest.mark.parametrize(
    ("task", "reason", "metadata"),
    [
        (Good, None, {}),
        (Idle, "nothing to do", {"code": "idle"}),
        (Bad, "no stock", {"code": 404}),
        (Broken, "[ValueError] no luck", {}),
        (Outer, "too deep", {}),
    ],
)
def test_reason_and_metadata_come_from_the_halt_or_the_error(task, reason, metadata):
    result = task.execute()

    assert result.reason == reason
    assert result.metadata == metadata


def test_metadata_joins_what_the_task_and_its_halt_noted():
    class Noting(Task[None]):
        def work(self) -> None:
            self.metadata["seen"] = 1
            self.metadata["code"] = 0
            self.fail("no", code=2)

    assert Noting.execute().metadata == {"seen": 1, "code": 2}


def test_cause_is_the_very_object_that_was_raised():
    error = ValueError("mine")

    class Raising(Task[None]):
        def work(self) -> None:
            raise error

    assert Raising.execute().cause is error


@pytest.mark.parametrize("task", [Good, Idle, Bad, Outer])
def test_there_is_no_cause_without_an_exception(task):
    assert task.execute().cause is None


def test_a_success_can_have_a_reason_a_value_and_metadata():
    class Early(Task[int]):
        def work(self) -> int:
            self.succeed("cached", value=8, hits=2)

    result = Early.execute()

    assert result.success
    assert result.value == 8
    assert result.reason == "cached"
    assert result.metadata == {"hits": 2}


# -- value ----------------------------------------------------------------------


def test_value_is_what_work_returned():
    assert Good.execute().value == 3


def test_none_is_a_value():
    class Nothing(Task[None]):
        def work(self) -> None: ...

    result = Nothing.execute()

    assert result.value is None
    assert result.value_or("default") is None


def test_a_failed_task_raises_its_fault_when_asked_for_its_value():
    result = Bad.execute()

    with pytest.raises(Bad.Fault, match="no stock") as caught:
        _ = result.value

    assert caught.value.result == result


def test_a_fault_raised_for_a_value_has_the_exception_as_its_cause():
    result = Broken.execute()

    with pytest.raises(Broken.Fault) as caught:
        _ = result.value

    assert caught.value.__cause__ is result.cause


def test_a_skipped_task_says_that_it_has_no_value_and_what_to_do():
    with pytest.raises(NoValueError, match=r"Idle was skipped.*value_or"):
        _ = Idle.execute().value


@pytest.mark.parametrize(
    ("task", "value"), [(Good, 3), (Idle, 0), (Bad, 0), (Broken, 0), (Outer, 0)]
)
def test_value_or_falls_back_unless_it_was_a_success(task, value):
    assert task.execute().value_or(0) == value


@pytest.mark.parametrize("task", [Good, Idle])
def test_or_raise_returns_the_result_itself_unless_it_failed(task):
    result = task.execute()

    assert result.or_raise() is result


def test_or_raise_raises_the_identical_exception():
    result = Broken.execute()

    with pytest.raises(ValueError, match="no luck") as caught:
        result.or_raise()

    assert caught.value is result.cause


def test_or_raise_raises_a_fault_where_there_is_no_exception():
    result = Bad.execute()

    with pytest.raises(Bad.Fault) as caught:
        result.or_raise()

    assert caught.value.result == result
    assert caught.value.__cause__ is None


# -- failure walk ---------------------------------------------------------------


def test_a_thrown_failure_leads_to_who_threw_and_who_caused_it():
    outer = Outer.execute()
    _, inner, middle = outer.chain

    assert (inner.task, middle.task) == (Inner, Middle)
    assert outer.origin == middle
    assert outer.threw_failure == middle
    assert outer.caused_failure == inner
    assert middle.threw_failure == inner
    assert middle.caused_failure == inner


def test_a_failure_of_its_own_is_where_the_walk_ends():
    result = Bad.execute()

    assert result.threw_failure == result
    assert result.caused_failure == result
    assert result.origin is None


@pytest.mark.parametrize("task", [Good, Idle])
def test_there_is_no_walk_without_a_failure(task):
    result = task.execute()

    assert result.threw_failure is None
    assert result.caused_failure is None
    assert result.error is None


@pytest.mark.parametrize(
    ("task", "caused", "thrown"),
    [
        (Good, False, False),
        (Idle, False, False),
        (Bad, True, False),
        (Broken, True, False),
        (Outer, False, True),
    ],
)
def test_a_failure_is_either_caused_or_thrown(task, caused, thrown):
    result = task.execute()

    assert result.is_caused_failure is caused
    assert result.is_thrown_failure is thrown


def test_error_is_the_exception_or_else_the_reason():
    broken = Broken.execute()

    assert broken.error is broken.cause
    assert Bad.execute().error == "no stock"


# -- run ------------------------------------------------------------------------


@retry_on(TimeoutError, limit=2, delay=0.25)
class Flaky(Task[int]):
    def work(self) -> int:
        if self.attempt < self.context.failures:
            raise TimeoutError(f"attempt {self.attempt}")
        return self.attempt


@pytest.mark.usefixtures("instant")
@pytest.mark.parametrize(
    ("failures", "retries", "status"),
    [
        (0, 0, Status.SUCCESS),
        (1, 1, Status.SUCCESS),
        (2, 2, Status.SUCCESS),
        (3, 2, Status.FAILED),
    ],
)
def test_retries_is_the_index_of_the_last_attempt(failures, retries, status):
    result = Flaky.execute(failures=failures)

    assert result.retries == retries
    assert result.retried is (retries > 0)
    assert result.status is status


def test_one_clean_attempt_leaves_no_records():
    assert Good.execute().attempts == ()


def test_attempts_record_start_duration_error_pause_and_rule(instant):
    @retry_on(TimeoutError, limit=2, delay=0.25)
    @retry_on(KeyError, delay=2.0, rule="keys")
    class Recorded(Task[int]):
        def work(self) -> int:
            instant.slept += 10
            if self.attempt == 0:
                raise TimeoutError("first")
            if self.attempt == 1:
                raise KeyError("second")
            return 5

    result = Recorded.execute()
    first, second, third = result.attempts

    assert [type(each.error) for each in result.attempts] == [
        TimeoutError,
        KeyError,
        type(None),
    ]
    assert [each.pause for each in result.attempts] == [0.25, 2.0, None]
    assert [each.rule for each in result.attempts] == [None, "keys", None]
    assert [each.start for each in result.attempts] == pytest.approx(
        [0, 10.25, 22.25], abs=1
    )
    assert [each.duration for each in result.attempts] == pytest.approx(
        [10, 10, 10], abs=1
    )
    assert first.start < second.start < third.start


@pytest.mark.usefixtures("instant")
def test_the_last_attempt_of_a_failure_is_recorded_with_its_error():
    result = Flaky.execute(failures=3)

    assert len(result.attempts) == 3
    assert result.attempts[-1].error is result.cause
    assert result.attempts[-1].pause is None
    assert [each.pause for each in result.attempts[:-1]] == [0.25, 0.25]


@pytest.mark.usefixtures("instant")
def test_attempts_cannot_be_changed():
    result = Flaky.execute(failures=1)

    with pytest.raises(AttributeError):
        result.attempts[0].pause = 5
    assert isinstance(result.attempts, tuple)


@retry_on(ValueError, limit=1)
class Exhausted(Broken):
    pass


@retry_on(ValueError, if_=False)
class Gated(Broken):
    pass


class HaltedBefore(Good):
    @before_execution
    def stop(self) -> None:
        self.fail("not today")


@pytest.mark.usefixtures("instant")
@pytest.mark.parametrize(
    ("task", "stopped"),
    [
        (Good, Stop.SUCCESS),
        (Broken, Stop.NOT_LISTED),
        (Idle, Stop.HALTED),
        (Bad, Stop.HALTED),
        (Exhausted, Stop.EXHAUSTED),
        (Gated, Stop.GATE),
        (HaltedBefore, None),
    ],
)
def test_stopped_tells_why_work_was_not_called_again(task, stopped):
    assert task.execute().stopped is stopped


def test_stopped_is_a_text():
    assert {each.value for each in Stop} == {
        "success",
        "exhausted",
        "not_listed",
        "gate",
        "halted",
        "deadline",
        "budget",
        "guidance",
        "cancelled",
    }
    assert Stop.EXHAUSTED == "exhausted"


@pytest.mark.usefixtures("instant")
def test_duration_covers_all_attempts_and_pauses():
    result = Flaky.execute(failures=2)

    assert result.duration == sum(attempt.pause or 0 for attempt in result.attempts)
    assert result.duration > 0


def forbidding(task):
    task.fail("not today")
    yield


@middleware(forbidding)
class HaltedOutside(Good):
    pass


@pytest.mark.parametrize(
    "task",
    [
        Good,
        Idle,
        Bad,
        Broken,
        Outer,
        HaltedBefore,
        HaltedOutside,
    ],
)
def test_duration_is_a_number_in_every_case(task):
    duration = task.execute().duration

    assert isinstance(duration, float)
    assert 0 <= duration < math.inf


def test_a_middleware_can_read_the_duration_so_far(instant):
    seen = []

    def watching(_task):
        result = yield
        seen.append(result.duration)

    @middleware(watching)
    class Slow(Task[None]):
        def work(self) -> None:
            instant.slept += 7

    Slow.execute()

    assert 7 <= seen[0] < 8


def test_started_at_is_the_time_of_the_start_in_utc():
    before = datetime.now(UTC)
    started_at = Good.execute().started_at
    after = datetime.now(UTC)

    assert started_at.utcoffset() == timedelta(0)
    # A float holds the seconds, so the last microsecond may be rounded off.
    rounding = timedelta(microseconds=2)
    assert before - rounding <= started_at <= after + rounding


def test_strict_tells_that_it_was_run_by_execute_or_raise():
    assert Good.execute().strict is False
    assert Good.execute_or_raise().strict is True
    with pytest.raises(Fault) as caught:
        Bad.execute_or_raise()
    assert caught.value.result.strict is True


def test_deprecated_tells_that_the_task_was_deprecated_this_time():
    class Old(Task[None], deprecated=lambda _: None, deprecated_if="old"):
        def old(self) -> bool:
            return self.context.old

        def work(self) -> None: ...

    assert Old.execute(old=True).deprecated is True
    assert Old.execute(old=False).deprecated is False


class Undone(Task[int]):
    def work(self) -> int:
        if self.context.get("fails"):
            self.fail("no")
        return 1

    def rollback(self) -> None:
        if self.context.get("stuck"):
            raise OSError("stuck")


@pytest.mark.parametrize(
    ("inputs", "rolled_back", "error"),
    [
        ({}, False, type(None)),
        ({"fails": True}, True, type(None)),
        ({"fails": True, "stuck": True}, True, OSError),
    ],
)
def test_it_tells_whether_the_work_was_rolled_back_and_how(inputs, rolled_back, error):
    result = Undone.execute(**inputs)

    assert result.rolled_back is rolled_back
    assert type(result.rollback_error) is error


def test_a_raising_rollback_leaves_the_failure_as_it_was():
    result = Undone.execute(fails=True, stuck=True)

    assert result.reason == "no"
    assert result.cause is None
    assert str(result.rollback_error) == "stuck"


# -- read-only ------------------------------------------------------------------

ATTRIBUTES = (
    "task", "tid", "context", "errors", "type", "tags",
    "status", "state", "reason", "metadata", "cause", "origin", "value",
    "success", "skipped", "failed", "complete", "interrupted", "ok", "ko",
    "threw_failure", "caused_failure", "is_thrown_failure", "is_caused_failure",
    "error",
    "retries", "retried", "attempts", "stopped", "duration", "started_at",
    "strict", "deprecated", "rolled_back", "rollback_error",
    "chain", "cid", "xid", "index", "root", "parent", "parent_tid", "depth",
)  # fmt: skip


@pytest.mark.parametrize("name", [*ATTRIBUTES, "something_new"])
def test_a_result_is_read_only(name):
    result = Good.execute()
    before = getattr(result, name, "missing")

    with pytest.raises(AttributeError):
        setattr(result, name, "changed")
    with pytest.raises(AttributeError):
        delattr(result, name)

    assert getattr(result, name, "missing") == before


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_an_attribute_of_a_result_says_what_to_do_instead_of_setting_it(name):
    result = Good.execute()

    with pytest.raises(AttributeError, match=f"its {name} cannot be changed. Decide"):
        setattr(result, name, "changed")
    with pytest.raises(AttributeError, match=f"its {name} cannot be changed. Decide"):
        delattr(result, name)


def test_metadata_cannot_be_changed_through_the_result():
    result = Bad.execute()

    with pytest.raises(TypeError, match=r"Note facts in self.metadata while"):
        result.metadata["code"] = 200
    with pytest.raises(TypeError, match=r"or change a copy: dict\(result.metadata\)"):
        del result.metadata["code"]

    assert result.metadata == {"code": 404}


def test_metadata_can_be_read_and_copied_like_a_dict():
    metadata = Bad.execute().metadata
    copy = metadata.copy()
    copy["code"] = 200

    assert dict(metadata) == {**metadata} == {"code": 404}
    assert (metadata["code"], metadata.get("late"), len(metadata)) == (404, None, 1)
    assert metadata | {"late": 1} == {"late": 1} | metadata == {"code": 404, "late": 1}
    assert repr(metadata) == "{'code': 404}"
    match metadata:
        case {"code": code}:
            assert code == 404


@pytest.mark.parametrize("noted", [True, False], ids=["noted", "not noted"])
def test_what_a_task_notes_after_its_end_does_not_change_the_result(noted):
    class Keeping(Task[None]):
        def work(self) -> None:
            self.context.task = self
            if noted:
                self.metadata["code"] = 1
                self.errors.add("name", "is bad")

    result = Keeping.execute()
    task = result.context.task
    task.metadata["late"] = 2
    task.errors.add("late", "is too late")

    assert result.metadata == ({"code": 1} if noted else {})
    assert result.errors.to_dict() == ({"name": ["is bad"]} if noted else {})


@pytest.mark.parametrize("fails", [True, False])
def test_errors_cannot_be_changed_through_the_result(fails):
    class Checked(Task[None]):
        def work(self) -> None:
            if fails:
                self.errors.add("name", "is bad")

    result = Checked.execute()
    before = result.errors.to_dict()

    with pytest.raises(TypeError, match=r"cannot be changed.*self\.errors in work"):
        result.errors.add("late", "is too late")
    with pytest.raises(TypeError, match="cannot be changed"):
        result.errors.clear()

    assert result.errors.to_dict() == before


def test_a_middleware_that_keeps_a_replaced_result_keeps_its_errors():
    kept = []

    def late(task):
        kept.append((yield))
        task.errors.clear()
        task.skip("never mind")

    @middleware(late)
    class Checked(Task[None]):
        def work(self) -> None:
            self.errors.add("name", "is bad")

    result = Checked.execute()

    assert (result.status, result.errors.to_dict()) == ("skipped", {})
    assert kept[0].reason == "name is bad"


@EVERY_OUTCOME
def test_a_result_is_neither_true_nor_false(task):
    with pytest.raises(TypeError, match=r"\.success.*\.ok.*\.failed"):
        bool(task.execute())


# -- as text and data -----------------------------------------------------------


@pytest.mark.parametrize(
    ("task", "parts"),
    [
        (Good, ["Good", "3"]),
        (Idle, ["Idle", "nothing to do"]),
        (Bad, ["Bad", "no stock"]),
        (Broken, ["Broken", "[ValueError] no luck"]),
        (Outer, ["Outer", "too deep"]),
    ],
)
def test_repr_and_str_tell_the_outcome_on_one_line(task, parts):
    result = task.execute()

    for text in (repr(result), str(result)):
        assert len(text.splitlines()) == 1
        assert [part for part in parts if part not in text] == []


def test_repr_differs_by_status():
    class Named(Task[None]):
        def work(self) -> None:
            getattr(self, self.context.halt)()

    texts = {
        repr(Named.execute(halt=halt)).split()[0]
        for halt in ("succeed", "skip", "fail")
    }

    assert len(texts) == 3


class Poem:
    def __repr__(self) -> str:
        return "roses\r\nare\u2028red"


@pytest.mark.parametrize("text", ["two\nlines", "a\r\nb", "a\x0bb\x85c\u2028d", "\n"])
def test_repr_stays_on_one_line_whatever_the_reason(text):
    class Verbose(Task[None]):
        def work(self) -> None:
            self.fail(text)

    assert len(repr(Verbose.execute()).splitlines()) == 1
    assert len(str(Verbose.execute()).splitlines()) == 1


def test_repr_stays_on_one_line_whatever_the_value():
    class Poetic(Task[Poem]):
        def work(self) -> Poem:
            return Poem()

    assert len(repr(Poetic.execute()).splitlines()) == 1


def test_repr_cuts_long_values():
    class Long(Task[str]):
        def work(self) -> str:
            return "x" * 10_000

    assert len(repr(Long.execute())) < 300


@pytest.mark.usefixtures("instant")
def test_repr_tells_how_often_it_was_retried():
    assert "2 retries" in repr(Flaky.execute(failures=2))
    assert "1 retry" in repr(Flaky.execute(failures=1))
    assert "retr" not in repr(Flaky.execute(failures=0))


def test_to_dict_has_the_facts_of_every_group():
    class Fact(Task[int], tags=("a",), correlation_id=lambda: "order-7"):
        def work(self) -> int:
            self.succeed("fine", value=2, code=1)

    result = Fact.execute()

    facts = result.to_dict()

    assert facts == {
        "task": Fact.__qualname__,
        "type": "Task",
        "tid": result.tid,
        "cid": result.cid,
        "xid": "order-7",
        "index": 0,
        "root": True,
        "parent_tid": None,
        "depth": 0,
        "tags": ["a"],
        "state": "complete",
        "status": "success",
        "reason": "fine",
        "value": 2,
        "metadata": {"code": 1},
        "errors": {},
        "cause": None,
        "origin": None,
        "retries": 0,
        "retried": False,
        "stopped": "halted",
        "attempts": [],
        "started_at": result.started_at.isoformat(),
        "duration": result.duration,
        "strict": False,
        "deprecated": False,
        "rolled_back": False,
        "rollback_error": None,
        "compensated": [],
        "conflicts": [],
        "replaced": None,
        "halted_at": f"{__file__}:{Fact.work.__code__.co_firstlineno + 1}",
        "guidance": None,
        "operation": None,
    }


@pytest.mark.usefixtures("instant")
def test_to_dict_describes_exceptions_and_origin_in_plain_data():
    exhausted = Flaky.execute(failures=3).to_dict()
    outer = Outer.execute()

    assert exhausted["cause"] == "TimeoutError: attempt 2"
    assert [each["error"] for each in exhausted["attempts"]] == [
        "TimeoutError: attempt 0",
        "TimeoutError: attempt 1",
        "TimeoutError: attempt 2",
    ]
    assert [each["pause"] for each in exhausted["attempts"]] == [0.25, 0.25, None]
    assert outer.to_dict()["origin"] == ["Middle", outer.origin.tid]
    stuck = Undone.execute(fails=True, stuck=True).to_dict()
    assert stuck["rollback_error"] == "OSError: stuck"


def test_to_dict_can_be_changed_without_changing_the_result():
    result = Bad.execute()

    facts = result.to_dict()
    facts["metadata"]["code"] = 200
    facts["errors"]["name"] = ["is empty"]

    assert result.metadata == {"code": 404}
    assert result.to_dict()["errors"] == {}


@EVERY_OUTCOME
def test_to_json_is_to_dict_as_json(task):
    result = task.execute()

    assert json.loads(result.to_json()) == result.to_dict()


@pytest.mark.usefixtures("instant")
def test_to_json_of_a_retried_run_is_to_dict_as_json():
    result = Flaky.execute(failures=3)

    assert json.loads(result.to_json()) == result.to_dict()


def test_to_json_keeps_letters_readable():
    class Greeting(Task[str]):
        def work(self) -> str:
            return "Grüße"

    assert "Grüße" in Greeting.execute().to_json()


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ({1}, "{1}"),
        (Poem(), repr(Poem())),
        (b"raw", "b'raw'"),
        ({"when": 1j}, {"when": "1j"}),
    ],
)
def test_to_json_writes_what_json_does_not_know_as_its_repr(value, written):
    class Returning(Task[object]):
        def work(self) -> object:
            self.metadata["noted"] = value
            return value

    facts = json.loads(Returning.execute().to_json())

    assert facts["value"] == written
    assert facts["metadata"] == {"noted": written}


def test_to_json_copes_with_keys_json_does_not_know():
    class Matrix(Task[dict[tuple[int, int], str]]):
        def work(self) -> dict[tuple[int, int], str]:
            return {(0, 1): "x"}

    facts = json.loads(Matrix.execute().to_json())

    assert facts["status"] == "success"
    assert "(0, 1)" in str(facts["value"])


@pytest.mark.parametrize("method", ["to_dict", "to_json", "__repr__", "__str__"])
def test_no_text_or_data_shows_inputs_or_context(method):
    class Secretive(Task[None]):
        def work(self) -> None:
            self.context.written = "hunter3"
            self.fail("denied")

    result = Secretive.execute(given="hunter2")

    assert "hunter" not in str(getattr(result, method)())


# -- match, equality, hash ------------------------------------------------------


@pytest.mark.parametrize(
    ("task", "said"),
    [
        (Good, "returned 3"),
        (Idle, "skipped: nothing to do"),
        (Bad, "failed with 404"),
        (Broken, "raised no luck"),
        (Outer, "failed otherwise"),
    ],
)
def test_match_tells_outcomes_apart(task, said):
    match task.execute():
        case Result(status=Status.SUCCESS) as result:
            told = f"returned {result.value}"
        case Result(status=Status.SKIPPED, reason=reason):
            told = f"skipped: {reason}"
        case Result(status=Status.FAILED, cause=ValueError() as error):
            told = f"raised {error}"
        case Result(status=Status.FAILED, metadata={"code": code}):
            told = f"failed with {code}"
        case Result(status="failed"):
            told = "failed otherwise"

    assert told == said


def test_all_readings_of_one_run_are_equal_and_hash_alike():
    outer = Outer.execute()
    middle = outer.origin

    assert outer.chain.root == outer
    assert outer.chain[2] == middle
    assert hash(outer.chain[2]) == hash(middle)
    assert len({outer, outer.chain.root, outer.chain[0], middle}) == 2


def test_results_of_two_runs_differ_even_if_they_say_the_same():
    assert Good.execute() != Good.execute()


@pytest.mark.parametrize("other", [3, None, "Good", object()])
def test_a_result_equals_nothing_else(other):
    assert Good.execute() != other


# -- where results are seen early -----------------------------------------------


def test_a_middleware_sees_the_result_that_is_returned():
    seen = []

    def watching(_task):
        seen.append((yield))

    @middleware(watching)
    class Watched(Task[int]):
        def work(self) -> int:
            return 4

    result = Watched.execute()

    assert seen == [result]
    assert seen[0].value == 4
    assert seen[0].cid == result.cid


@pytest.mark.usefixtures("instant")
def test_a_callback_that_raises_keeps_what_the_run_recorded():
    @retry_on(TimeoutError, limit=1, delay=0.25)
    class Paging(Task[None]):
        def work(self) -> None:
            raise TimeoutError("slow")

        def rollback(self) -> None:
            raise OSError("stuck")

        @on_failed
        def page(self) -> None:
            raise ConnectionError("no pager")

    result = Paging.execute()

    assert result.reason == "[ConnectionError] no pager"
    assert result.retries == 1
    assert [each.pause for each in result.attempts] == [0.25, None]
    assert result.stopped is Stop.EXHAUSTED
    assert isinstance(result.rollback_error, OSError)
