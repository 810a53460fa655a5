"""Whether the value of a task can be stored, as far as its annotation tells."""

from __future__ import annotations

import socket
import warnings
from collections import OrderedDict, defaultdict
from collections.abc import Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from pathlib import Path, PurePath, PurePosixPath
from typing import Any, Literal, Protocol, TypedDict

import pytest

from cmdx import Task
from cmdx.inputs.errors import Invalid
from cmdx.operations import operation
from cmdx.wire import RefusedInputError, WireError, encodings, fingerprint
from cmdx.wire.encoding import encode, is_storable


@dataclass
class Receipt:
    total: int


class Row(TypedDict):
    total: int


class Money:
    pass


class Quacking(Protocol):
    def quack(self) -> str: ...


def declare(annotation):
    """Declare an operation whose value is annotated like this."""

    @operation()
    class Charge(Task[annotation]):
        def work(self):
            return None


@pytest.mark.parametrize(
    "annotation",
    [
        int,
        bytes,
        bytearray,
        Receipt,
        Receipt | None,
        list[Receipt],
        dict[str, Receipt],
        tuple[int, str],
        Mapping[str, int],
        Sequence[Receipt],
        Row,
        Literal["a"],
        Path,
        PurePath,
        Sized,
        Quacking,
        Any,
        None,
        object,
    ],
    ids=str,
)
def test_what_can_be_stored_is_declared_without_a_warning(annotation):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        declare(annotation)


@pytest.mark.parametrize(
    "annotation",
    [
        socket.socket,
        list[socket.socket],
        Receipt | Money,
        OrderedDict,
        defaultdict[str, int],
        PurePosixPath,
        memoryview,
        range,
        type[int],
        Iterator[int],
    ],
    ids=str,
)
def test_an_operation_warns_of_a_value_that_others_will_not_have(annotation):
    with pytest.warns(UserWarning, match=r"Charge returns \w+, which cannot be stored"):
        declare(annotation)


def test_a_registered_class_can_be_stored():
    encodings.register(Money, str)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            declare(Money)
    finally:
        encodings.deregister(Money)


@pytest.mark.parametrize(
    "value",
    [
        *(None, 1, "a", b"a", Path("a"), (1,), {1}, {"a": 1}, Receipt(1)),
        *(OrderedDict(a=1), defaultdict(int), PurePosixPath("a"), bytearray(b"a")),
        *(range(1), Money()),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_warning_agrees_with_what_is_encoded(value):
    try:
        encode(value, tagged=True)
    except Invalid:
        assert not is_storable(type(value))
    else:
        assert is_storable(type(value))


class Order(Task[None], name="wire.order"):
    number: int
    line: socket.socket | None = None

    def work(self):
        return None


def test_an_input_that_a_run_would_refuse_is_told_from_one_that_cannot_be_stored():
    with pytest.raises(RefusedInputError, match=r"Order\.number"):
        fingerprint(Order(number="many"))
    with socket.socket() as line, pytest.raises(WireError) as refusal:
        fingerprint(Order(number=1, line=line))
    assert not isinstance(refusal.value, RefusedInputError)
