"""
Invocations as JSON.

Stored are the inputs that the caller gave, coerced but not transformed, because the run
transforms them. What was not given is made at the run.

1. the inputs that were given                     ``given_inputs``
2. as JSON, or a refusal with the path            ``store_input``
3. and back to an invocation                      ``load_invocation``
"""

from __future__ import annotations

import hashlib
import io
from collections import abc
from typing import IO, TYPE_CHECKING, Any, get_origin
from weakref import WeakKeyDictionary

import attrs

from cmdx import Task
from cmdx.context import MISSING
from cmdx.inputs.annotations import union_members
from cmdx.inputs.blank import is_blank_text
from cmdx.inputs.errors import Invalid
from cmdx.inputs.fields import is_call
from cmdx.inputs.pipeline import input_coercer
from cmdx.inputs.scalars import Coercer, as_is
from cmdx.wire.encoding import CODE as UNSTORABLE
from cmdx.wire.encoding import canonical_text, encode
from cmdx.wire.errors import RefusedInputError, WireError
from cmdx.wire.forms import ANYTHING, Form
from cmdx.wire.names import find_task, task_module, task_name
from cmdx.wire.stored import StoredInvocation, read_stored

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cmdx.declare.blueprint import Plan
    from cmdx.inputs.collect import Input
    from cmdx.run.record import Run

__all__ = ["dump_invocation", "fingerprint", "load_invocation"]

STREAMS = (abc.Iterator, abc.AsyncIterator, IO, io.IOBase)

known_forms: WeakKeyDictionary[Plan, dict[str, Form]] = WeakKeyDictionary()
"""How the inputs of a task are stored, by the keys that callers use."""


def dump_invocation(task: Task[Any]) -> dict[str, Any]:
    """
    Return an invocation as JSON; refuse inputs that would not come back the same.

    Args:
        task: The invocation; whether it has run makes no difference.
    """
    cls = type(task)
    inputs = {key: stored for key, stored, _ in stored_inputs(task)}
    return {"task": task_name(cls), "module": task_module(cls), "inputs": inputs}


def load_invocation(data: Mapping[str, Any], *, tasks: Sequence[str] = ()) -> Task[Any]:
    """
    Return the invocation that ``dump_invocation`` made *data* of.

    A module is imported only if its top-level package already has a task in this
    process, or is listed.

    Args:
        data: The stored invocation. Whoever can change it can run any task of this
            process with any inputs.
        tasks: Packages and modules that may be imported to find the task.
    """
    stored = read_stored(data, StoredInvocation, "dump_invocation")
    cls = find_task(stored["task"], stored["module"], tasks)
    forms = forms_of(cls._cmdx_.plan)
    inputs: dict[str, Any] = {}
    for key, value in stored["inputs"].items():
        if forms and key not in forms:
            message = f"{cls.__qualname__} has no input {key!r}, but it was stored."
            raise WireError(f"{message} Store the invocation again.")
        try:
            inputs[key] = None if value is None else form_for(forms, key).load(value)
        except Invalid as invalid:
            raise WireError(
                refusal_text(cls, key, invalid, "was stored, but")
            ) from None
    return cls(**inputs)


def fingerprint(task: Task[Any]) -> str:
    """
    Return a text that is the same for invocations of the same task and inputs.

    It is the SHA-256 of the name and the inputs that were given and differ from their
    default. Streams, and what factories and sources make, are left out.

    Args:
        task: The invocation.
    """
    inputs = {
        key: stored
        for key, stored, declared in stored_inputs(task, is_lenient=True)
        if declared is None or not is_default(type(task), declared, key, stored)
    }
    text = canonical_text([task_name(type(task)), inputs])
    return hashlib.sha256(text.encode()).hexdigest()


def stored_inputs(
    task: Task[Any], *, is_lenient: bool = False
) -> Iterator[tuple[str, Any, Input | None]]:
    """
    Yield the keys of the inputs that were given, as JSON, with their declarations.

    If *is_lenient*, streams are left out, and what has a factory and cannot be stored.
    """
    if not isinstance(task, Task):
        message = (
            f"an invocation is needed, such as ChargeCard(order_id=7), got {task!r}."
        )
        raise TypeError(message)
    forms = forms_of(task._cmdx_.plan)
    for key, value, declared in given_inputs(task._cmdx_):
        form = form_for(forms, key)
        if is_lenient and form.is_stream:
            continue
        try:
            yield key, store_input(form, value, declared), declared
        except Invalid as invalid:
            if is_lenient and declared is not None and declared.field.factory:
                continue
            cls = type(task)
            message = refusal_text(cls, key, invalid, "cannot be stored: it")
            is_storable = invalid.code != UNSTORABLE
            raise (RefusedInputError if is_storable else WireError)(message) from None


def given_inputs(run: Run) -> Iterator[tuple[str, Any, Input | None]]:
    """Yield what the caller gave: key, value, and declaration if there is one."""
    values = run.context
    if not run.plan.inputs:
        yield from ((key, value, None) for key, value in values.items())
        return
    fields = run.plan.fields.inputs
    for plan in run.plan.inputs:
        # An input with a source has a key that no caller has.
        value = values.get(plan.key, MISSING)
        if value is MISSING:
            continue
        if plan.admits_blank_text or not is_blank_text(value):
            yield plan.public_name, value, fields[plan.name]


def store_input(form: Form, value: Any, declared: Input | None) -> Any:
    """Return one input as JSON, coerced; raise ``Invalid`` if it cannot be stored."""
    if declared is None:
        stored = encode(value, tagged=False)
        if canonical_text(stored) != canonical_text(encode(value, tagged=True)):
            message = "is not JSON, and the task declares no inputs; declare it"
            raise Invalid("unstorable", message)
        return stored
    return None if value is None else form.store(form.coerce(value))


def forms_of(plan: Plan) -> dict[str, Form]:
    """Return how the inputs of a task are stored, by the keys that callers use."""
    forms = known_forms.get(plan)
    if forms is None:
        forms = known_forms[plan] = {
            declared.key: input_form(declared)
            for declared in plan.fields.inputs.values()
            if "source" not in declared.field.options
        }
    return forms


def form_for(forms: Mapping[str, Form], key: str) -> Form:
    """Return how the input *key* is stored; a task without inputs takes anything."""
    return forms[key] if forms else ANYTHING


def input_form(declared: Input) -> Form:
    """Return how values of an input are stored."""
    coerce: Coercer = as_is  # of a function: it need not take what it has made
    if not is_call(declared.field.options.get("coerce")):
        coerce = input_coercer(declared.name, declared)
    form = Form.of(declared.annotation, declared.names, coerce)
    return attrs.evolve(form, is_stream=is_stream(declared))


def is_default(cls: type[Task[Any]], declared: Input, key: str, stored: Any) -> bool:
    """Tell whether an input that was given is the same as its default."""
    field = declared.field
    if field.required or field.factory is not None:
        return False
    form = forms_of(cls._cmdx_.plan)[key]
    try:
        default = store_input(form, field.default, declared)
    except Invalid:
        return False
    return canonical_text(default) == canonical_text(stored)


def is_stream(declared: Input) -> bool:
    """Tell whether an input is read once, and so cannot be stored or compared."""
    kinds = (get_origin(kind) or kind for kind in union_members(declared.annotation))
    return any(isinstance(kind, type) and issubclass(kind, STREAMS) for kind in kinds)


def refusal_text(cls: type, key: str, invalid: Invalid, what: str) -> str:
    """Say which part of an input is refused, and why."""
    problem = invalid.below(key)
    return f"{cls.__qualname__}.{problem.path} {what} {problem.message}."
