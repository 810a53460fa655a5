"""
Resolving inputs at the start of a run.

This is imported by ``import cmdx`` and runs for each task, so it imports little and
does little: the work is prepared by ``pipeline`` when the class is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from cmdx.context import MISSING
from cmdx.inputs.blank import is_blank_text
from cmdx.inputs.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from cmdx.run.invocation import Invocation


class InputPlan(NamedTuple):
    """One input, ready to be resolved."""

    name: str
    public_name: str
    """The name callers use, and the key of its errors."""
    key: Any
    """The key in the context; an object of its own if there is a source."""
    convert: Callable[[Any], Any] | None
    """Coerces, transforms and validates a value; None if methods of the task do."""
    fallback: Callable[[Invocation, Any], Any]
    """Returns the value if none was given, None was, or ``convert`` is not enough."""
    admits_blank_text: bool
    """Whether blank text is a value; for anything but text it counts as not given."""
    takes_all_values: bool
    """Whether it takes all values of a key in a multi-dict."""


def resolve(task: Invocation, inputs: tuple[InputPlan, ...]) -> None:
    """Set every input of *task*, or add every problem to its errors."""
    run = task._cmdx_
    if len(task.__dict__) > 1:  # more than ``_cmdx_``
        refuse_early_values(task, inputs)
    values = run.given if run._context is None else run._context._values
    for name, public_name, key, convert, fallback, admits_blank_text, _ in inputs:
        try:
            value = values.get(key, MISSING)
            if value is MISSING or value is None or convert is None:
                value = fallback(task, value)
            # As ``is_blank_text``, but without a call for each input.
            elif admits_blank_text or not isinstance(value, str) or value.strip():
                value = convert(value)
            else:
                value = fallback(task, MISSING)
        except Invalid as invalid:
            task.errors.add_invalid(public_name, invalid)
        except RecursionError:
            task.errors.add_invalid(public_name, Invalid("too_deep"))
        except AttributeError as error:
            if not run._errors or error.obj is not task:
                raise
            # It read an input that is wrong itself, and that is reported already.
        else:
            setattr(task, name, value)


def refuse_early_values(task: Invocation, inputs: tuple[InputPlan, ...]) -> None:
    """Refuse an input that was set as an attribute: its value would be lost."""
    for name, public_name, *_ in inputs:
        if name in vars(task):
            cls = type(task).__qualname__
            message = (
                f"the input {name!r} was set before inputs were resolved, so its value "
                f"would be lost. Give it to the invocation, {cls}({public_name}=...), "
                f"or in a before_* hook set self.context[{public_name!r}]."
            )
            raise AttributeError(message, obj=task)


def plain_values(
    source: Mapping[str, Any], inputs_of: Callable[[], Iterable[InputPlan]]
) -> Mapping[str, Any]:
    """
    Return *source*; of a multi-dict, all values for the inputs that take many.

    If several inputs have one key, the first that *inputs_of* yields decides.
    """
    values_of = _reader_of_all(source)
    if values_of is None:
        return source
    takers: dict[Any, InputPlan] = {}
    for plan in inputs_of():
        takers.setdefault(plan.key, plan)
    many = {key: plan for key, plan in takers.items() if plan.takes_all_values}
    return {
        key: _all_values(many[key], values_of(key)) if key in many else source[key]
        for key in source
    }


def _all_values(plan: InputPlan, values: list[Any]) -> Any:
    """Return *values*; a blank one alone is a blank field, as in a plain mapping."""
    is_blank = len(values) == 1 and is_blank_text(values[0])
    return values[0] if is_blank and not plan.admits_blank_text else values


def _reader_of_all(source: Any) -> Callable[[str], list[Any]] | None:
    """Return what reads all values of a key, None if *source* has one for each."""
    if type(source) is dict:
        return None
    for name in ("getlist", "getall"):  # werkzeug, Django, starlette; multidict
        read: Callable[[str], Iterable[Any]] | None = getattr(source, name, None)
        if callable(read):
            return lambda key: list(read(key))
    pairs: Callable[[], Iterable[tuple[str, Any]]] | None
    pairs = getattr(source, "multi_items", None)  # httpx
    if callable(pairs):
        return lambda key: [value for name, value in pairs() if name == key]
    return None


def mark_absent(task: Invocation, name: str) -> None:
    """Remember that the caller of *task* did not give the input *name*."""
    task._cmdx_.not_given += (name,)
