"""Whatever user code leaves behind, the result can be stored and read again."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import attrs
from hypothesis import given, settings
from hypothesis import strategies as st

from cmdx import RecordedError, Task, output, retry_on
from cmdx.guidance import Guidance
from cmdx.testing import instant
from cmdx.wire import dump_result, load_result


class Unprintable:
    def __str__(self):
        raise RuntimeError

    __repr__ = __str__


class Lying(str):
    """Text that says it is another one."""

    __slots__ = ()

    def __str__(self):
        return "another"

    def __eq__(self, other):
        raise RuntimeError

    __hash__ = str.__hash__


class NoNumber(int):
    def __repr__(self):
        raise RuntimeError


class OddError(Exception):
    """An error of which nothing can be asked."""

    def __len__(self):
        return 0

    def __str__(self):
        raise RuntimeError

    def __getattr__(self, name):
        raise RuntimeError


class GuidedError(Exception):
    def __init__(self, guidance):
        super().__init__("guided")
        self.guidance = guidance


@attrs.frozen
class Holder:
    held: Any


def nested(levels):
    deep: Any = "bottom"
    for level in range(levels):
        deep = [deep] if level % 2 else {"a": deep}
    return deep


circle: dict[str, Any] = {}
circle["itself"] = [circle]

# By name, because Hypothesis shows what it draws from.
HUGE = {
    "number": 10**5000,
    "circle": circle,
    "deep": nested(90),
    "deeper": nested(400),
    "too deep": nested(5000),
}

texts = st.text(st.characters(), max_size=5) | st.sampled_from(
    ["\ud800", "\x00", "", "$", Lying("text")]
)
odd = st.one_of(
    texts,
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.decimals(),
    st.complex_numbers(),
    st.binary(max_size=3),
    st.datetimes(),
    st.builds(object),
    st.builds(Unprintable),
    st.builds(NoNumber),
    st.sampled_from(sorted(HUGE)).map(lambda name: HUGE[name]),
    st.builds(iter, st.just([1])),
    st.builds(OddError),
)
hashable = st.one_of(texts, st.integers(), st.floats(), st.builds(Unprintable))
anything = st.recursive(
    odd,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(inner, inner),
        st.dictionaries(hashable, inner, max_size=3),
        inner.map(Holder),
    ),
    max_leaves=4,
)
errors = st.one_of(
    st.builds(OddError),
    st.builds(ValueError, anything),
    st.builds(RecordedError, texts, anything, anything),
    st.builds(GuidedError, anything),
    st.builds(
        lambda digits: GuidedError(Guidance(allowed=True, max_attempts=10**digits)),
        st.sampled_from([0, 3, 5000]),
    ),
    st.builds(lambda error: ExceptionGroup("group", [error]), st.builds(OddError)),
)


@attrs.frozen(repr=False)
class Script:
    """What a task leaves behind."""

    ending: str
    reason: str | Exception
    value: Any
    metadata: list[tuple[Any, Any]]
    problems: list[tuple[Any, Any, Any]]
    failures: list[Exception]
    undoing: Exception | None
    xid: Any

    def _repr_pretty_(self, printer, _cycle):
        """Tell Hypothesis how to show it; most of it has no repr."""
        printer.text(f"Script({self.ending!r})")


scripts = st.builds(
    Script,
    ending=st.sampled_from(["return", "succeed", "skip", "fail"]),
    reason=texts | errors,
    value=anything,
    metadata=st.lists(st.tuples(hashable, anything), max_size=2),
    problems=st.lists(st.tuples(hashable, hashable, st.none() | hashable), max_size=2),
    failures=st.lists(errors, max_size=2),
    undoing=st.none() | errors,
    xid=anything,
)


def task_for(annotation, xid):
    """A task that does what its script says, with a policy that tries again."""

    @retry_on(Exception, limit=3, delay=0)
    class Odd(Task[annotation], name="test.any_result", correlation_id=lambda: xid):
        script: Any
        taken: Any = None
        left: int = output()

        def work(self) -> Any:
            script = self.script
            self.left = script.value
            for key, item in script.metadata:
                self.metadata[key] = item
            for problem in script.problems:
                self.errors.add(*problem)
            if self.attempt < len(script.failures):
                raise script.failures[self.attempt]
            if script.ending == "succeed":
                self.succeed(script.reason, value=script.value)
            if script.ending in ("skip", "fail"):
                getattr(self, script.ending)(script.reason, given=script.value)
            return script.value

        def rollback(self) -> None:
            if self.script.undoing is not None:
                raise self.script.undoing

    return Odd


@settings(deadline=None)
@given(
    scripts,
    st.sampled_from([Any, None, int, str, list[str], Holder, dict[str, Decimal]]),
)
def test_a_result_is_never_refused(script, annotation):
    task = task_for(annotation, script.xid)
    with instant():
        result = task.execute(script=script, taken=script.value)
    loaded = load_result(json.loads(json.dumps(dump_result(result))))

    assert loaded.task is task
    assert loaded.status is result.status
    assert loaded.reason == as_text(result.reason)
    assert loaded.retries == result.retries
    assert loaded.stopped is result.stopped
    assert (loaded.tid, loaded.cid) == (result.tid, result.cid)
    assert len(loaded.attempts) in (0, len(result.attempts))
    assert dump_result(loaded) == dump_result(load_result(dump_result(loaded)))


def as_text(reason):
    return None if reason is None else str.__str__(reason)
