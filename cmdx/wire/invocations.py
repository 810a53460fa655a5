"""
Invocations as JSON: the story of this package.

Stored are the inputs that the caller gave, coerced but not transformed, because the run
transforms them. What was not given is made at the run.

1. the name of the task                                  ``cmdx.wire.names``
2. the inputs that were given                            ``given_inputs``
3. each as JSON by its annotation, or a refusal          ``encode_input``
   with the path; read ``cmdx.wire.codecs`` for how
4. and back to an invocation                             ``load_invocation``

Results are stored the same way, in ``cmdx.wire.results``.
"""

from __future__ import annotations

import hashlib
import io
from collections import abc
from typing import IO, TYPE_CHECKING, Any, get_origin

import attrs

from cmdx import Task
from cmdx.context import MISSING
from cmdx.inputs.annotations import union_members
from cmdx.inputs.blank import is_blank_text
from cmdx.inputs.errors import Invalid
from cmdx.inputs.fields import is_call
from cmdx.inputs.pipeline import input_coercer
from cmdx.inputs.scalars import Coercer, as_is
from cmdx.wire.codecs import ANYTHING, Codec, too_deep
from cmdx.wire.encoding import UNSTORABLE, canonical_text, encode
from cmdx.wire.errors import RefusedInputError, UnknownInputError, WireError
from cmdx.wire.layout import StoredInvocation, check_layout
from cmdx.wire.names import find_task, task_module, task_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cmdx.declare.blueprint import Plan
    from cmdx.inputs.collect import Input
    from cmdx.run.record import Run

__all__ = ["dump_invocation", "fingerprint", "load_invocation"]

STREAM_TYPES = (abc.Iterator, abc.AsyncIterator, IO, io.IOBase)
"""What is read once, and so cannot be stored or compared."""


def dump_invocation(task: Task[Any]) -> dict[str, Any]:
    """
    Return an invocation as JSON; refuse inputs that would not come back the same.

    Args:
        task: The invocation; whether it has run makes no difference.
    """
    inputs = inputs_data(task)
    cls = type(task)
    return {"task": task_name(cls), "module": task_module(cls), "inputs": inputs}


def inputs_data(task: Task[Any]) -> dict[str, Any]:
    """Return the inputs of an invocation as JSON, for who knows its task."""
    return {key: encoded for key, encoded, _ in encoded_inputs(task)}


def load_invocation(data: Mapping[str, Any], *, tasks: Sequence[str] = ()) -> Task[Any]:
    """
    Return the invocation that was stored as *data* by ``dump_invocation``.

    A module is imported only if its top-level package already has a task in this
    process, or is listed.

    Args:
        data: The stored invocation. Whoever can change it can run any task of this
            process with any inputs.
        tasks: Packages and modules that may be imported to find the task.
    """
    stored: StoredInvocation = check_layout(data, StoredInvocation, "dump_invocation")
    cls = find_task(stored["task"], stored["module"], tasks)
    return invocation_of(cls, stored["inputs"])


def invocation_of(cls: type[Task[Any]], stored: Mapping[str, Any]) -> Task[Any]:
    """Return an invocation of a task with the inputs that were stored of it."""
    codecs = input_codecs(cls._cmdx_.plan)
    inputs: dict[str, Any] = {}
    for key, value in stored.items():
        if codecs and key not in codecs:
            problem = f"{cls.__qualname__} has no input {key!r}, but it was given."
            cure = "Store or send it again without."
            raise UnknownInputError(problem, cure, key)
        try:
            inputs[key] = (
                None if value is None else codec_for(codecs, key).decode(value)
            )
        except Invalid as invalid:
            message = refusal_text(cls, key, invalid, "was stored, but")
            raise WireError(message) from None
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
        key: encoded
        for key, encoded, declared in encoded_inputs(task, is_lenient=True)
        if declared is None or not is_default(type(task), declared, key, encoded)
    }
    text = canonical_text([task_name(type(task)), inputs])
    return hashlib.sha256(text.encode()).hexdigest()


def encoded_inputs(
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
    codecs = input_codecs(task._cmdx_.plan)
    for key, value, declared in given_inputs(task._cmdx_):
        codec = codec_for(codecs, key)
        if is_lenient and codec.is_stream:
            continue
        try:
            yield key, encode_input(codec, value, declared), declared
        except Invalid as invalid:
            if is_lenient and declared is not None and declared.field.factory:
                continue
            message = refusal_text(type(task), key, invalid, "cannot be stored: it")
            kind = WireError if invalid.code == UNSTORABLE else RefusedInputError
            raise kind(message) from None


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


def encode_input(codec: Codec, value: Any, declared: Input | None) -> Any:
    """Return one input as JSON, coerced; raise ``Invalid`` if it cannot be stored."""
    if declared is None:
        return encode_undeclared(value)
    if value is None:
        return None
    try:
        coerced = codec.coerce(value)
    except RecursionError:
        raise Invalid("too_deep") from None
    return codec.encode(coerced)


def encode_undeclared(value: Any) -> Any:
    """Return an input without annotation, which must be JSON as it is."""
    try:
        encoded = encode(value, tagged=False)
        is_same = canonical_text(encoded) == canonical_text(encode(value, tagged=True))
    except RecursionError:
        raise too_deep() from None
    if not is_same:
        message = "is not JSON, and the task declares no inputs; declare it"
        raise Invalid(UNSTORABLE, message)
    return encoded


def input_codecs(plan: Plan) -> dict[str, Codec]:
    """Return how the inputs of a task are stored, by the keys that callers use."""
    return plan.derive(make_input_codecs)


def make_input_codecs(plan: Plan) -> dict[str, Codec]:
    """Make what ``input_codecs`` returns."""
    return {
        declared.key: input_codec(declared)
        for declared in plan.fields.inputs.values()
        if "source" not in declared.field.options
    }


def codec_for(codecs: Mapping[str, Codec], key: str) -> Codec:
    """Return how the input *key* is stored; a task without inputs takes anything."""
    return codecs[key] if codecs else ANYTHING


def input_codec(declared: Input) -> Codec:
    """Return how values of an input are stored."""
    coerce: Coercer = as_is  # of a function: it need not take what it has made
    if not is_call(declared.field.options.get("coerce")):
        coerce = input_coercer(declared.name, declared)
    codec = Codec.of(declared.annotation, declared.names, coerce)
    return attrs.evolve(codec, is_stream=is_stream(declared))


def is_default(cls: type[Task[Any]], declared: Input, key: str, encoded: Any) -> bool:
    """Tell whether an input that was given is the same as its default."""
    field = declared.field
    if field.required or field.factory is not None:
        return False
    codec = input_codecs(cls._cmdx_.plan)[key]
    try:
        default = encode_input(codec, field.default, declared)
    except Invalid:
        return False
    return canonical_text(default) == canonical_text(encoded)


def is_stream(declared: Input) -> bool:
    """Tell whether an input is read once, and so cannot be stored or compared."""
    kinds = (get_origin(kind) or kind for kind in union_members(declared.annotation))
    return any(
        isinstance(kind, type) and issubclass(kind, STREAM_TYPES) for kind in kinds
    )


def refusal_text(cls: type, key: str, invalid: Invalid, what: str) -> str:
    """Say which part of an input is refused, and why."""
    problem = invalid.below(key)
    return f"{cls.__qualname__}.{problem.path} {what} {problem.message}."
