"""
What is wrong with a value, and how to say it.

A check that fails raises ``Invalid`` with a code; the message for the code comes from
one catalogue, ``messages``, which can be changed, for instance to another language::

    cmdx.messages.update(required="fehlt", int="muss eine ganze Zahl sein")
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sized
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Check: TypeAlias = Callable[[Any], None]

messages: dict[str, str] = {
    "required": "is required",
    "none": "must not be empty",
    "unset": "must be set in the context",
    "invalid": "is invalid",
    "too_deep": "is nested too deeply",
    # coercion
    "str": "must be text",
    "int": "must be a whole number",
    "float": "must be a number",
    "bool": "must be true or false",
    "Decimal": "must be a decimal number",
    "Fraction": "must be a fraction",
    "complex": "must be a complex number",
    "date": "must be a date",
    "datetime": "must be a date and time",
    "time": "must be a time of day",
    "timedelta": "must be a duration",
    "UUID": "must be a UUID",
    "Path": "must be a path",
    "bytes": "must be bytes",
    "choice": "must be one of {choices}",
    "list": "must be a list",
    "tuple": "must be a list",
    "set": "must be a list without duplicates",
    "dict": "must be a mapping",
    "length_of_tuple": "must have {length} items",
    "object": "must be a mapping of the fields of {name}",
    "union": "must be one of {kinds}",
    # validators
    "presence": "must be present",
    "absence": "must be absent",
    "gt": "must be greater than {gt}",
    "ge": "must be at least {ge}",
    "lt": "must be less than {lt}",
    "le": "must be at most {le}",
    "multiple_of": "must be a multiple of {multiple_of}",
    "numeric": "must be numeric",
    "min_length": "must have a length of at least {min_length}",
    "max_length": "must have a length of at most {max_length}",
    "length": "must have a length of {length}",
    "sized": "must have a length",
    "pattern": "has the wrong format",
    "one_of": "must be one of {one_of}",
    "none_of": "must not be one of {none_of}",
}
"""One sentence for each code; ``{name}`` is replaced by what the check says."""

_BUILT_IN = dict(messages)


class Invalid(Exception):  # noqa: N818 -- it says what a value is
    """
    A value was refused.

    *path* leads to the part of the value that is wrong; further problems of the same
    value are in *others*.
    """

    def __init__(self, code: str, message: str | None = None, /, **said: Any) -> None:
        super().__init__(code)
        self.code = code
        self.said = said
        self.path = ""
        self.others: list[Invalid] = []
        self._message = message

    @property
    def message(self) -> str:
        """The sentence for people."""
        if self._message is not None:
            return self._message
        text = messages.get(self.code, _BUILT_IN.get(self.code, _BUILT_IN["invalid"]))
        try:
            return text.format(**self.said)
        except (LookupError, TypeError, ValueError, AttributeError):
            return text  # a catalogue that asks for what the check does not say

    def below(self, step: str) -> Invalid:
        """Put *step* before the paths of all problems."""
        for problem in self.all():
            dot = "." if problem.path and not problem.path.startswith("[") else ""
            problem.path = f"{step}{dot}{problem.path}"
        return self

    def all(self) -> list[Invalid]:
        """Return this problem and the others."""
        return [self, *self.others]

    @classmethod
    def together(cls, problems: list[Invalid]) -> Invalid:
        """Make one of several."""
        first, *rest = [each for problem in problems for each in problem.all()]
        first.others = rest
        return first


class Problem(NamedTuple):
    """One thing that is wrong."""

    key: str
    message: str
    code: str | None = None

    @property
    def full_message(self) -> str:
        """Key and message as one sentence."""
        return f"{self.key} {self.message}"


class Errors:
    """
    Problems by key, each kept once, in the order they were found.

    A task whose errors are not empty at a check fails with ``str(errors)``.
    """

    __slots__ = ("_problems",)

    def __init__(self) -> None:
        self._problems: dict[tuple[str, str], Problem] = {}

    def add(self, key: str, message: str, code: str | None = None) -> None:
        """Note that something is wrong with *key*; *code* is for machines."""
        self._problems.setdefault((key, message), Problem(key, message, code))

    def add_invalid(self, key: str, invalid: Invalid) -> None:
        """Note all problems of the value for *key*."""
        for problem in invalid.below(key).all():
            self.add(problem.path, problem.message, problem.code)

    def clear(self) -> None:
        """Forget all problems."""
        self._problems.clear()

    def __getitem__(self, key: str) -> list[str]:
        """Return the messages for *key*, none if there are none."""
        return [problem.message for problem in self if problem.key == key]

    def __contains__(self, key: object) -> bool:
        """Tell whether something is wrong with *key*."""
        return any(problem.key == key for problem in self)

    def __iter__(self) -> Iterator[Problem]:
        """Iterate over the problems."""
        return iter(tuple(self._problems.values()))

    def __len__(self) -> int:
        """Count the problems."""
        return len(self._problems)

    def to_dict(self) -> dict[str, list[str]]:
        """Return the messages by key."""
        by_key: dict[str, list[str]] = {}
        for problem in self:
            by_key.setdefault(problem.key, []).append(problem.message)
        return by_key

    def full_messages(self) -> list[str]:
        """Return one sentence for each problem."""
        return [problem.full_message for problem in self]

    def __str__(self) -> str:
        """Say everything that is wrong."""
        return ". ".join(self.full_messages())

    def __repr__(self) -> str:
        """Show the messages by key."""
        return f"Errors({self.to_dict()!r})"


# -- the validators: each takes what was asked for and returns a check ---------------


def presence(wanted: bool) -> Check:  # noqa: FBT001 -- the value of an option
    """Refuse None, blank text and empty containers; False and 0 are present."""

    def check(value: Any) -> None:
        if wanted and _is_blank(value):
            raise Invalid("presence")

    return check


def absence(wanted: bool) -> Check:  # noqa: FBT001 -- the value of an option
    """Refuse everything that is present."""

    def check(value: Any) -> None:
        if wanted and not _is_blank(value):
            raise Invalid("absence")

    return check


def gt(bound: Any) -> Check:
    """Refuse numbers up to *bound*."""
    return _bound("gt", bound, operator.gt)


def ge(bound: Any) -> Check:
    """Refuse numbers below *bound*."""
    return _bound("ge", bound, operator.ge)


def lt(bound: Any) -> Check:
    """Refuse numbers from *bound* on."""
    return _bound("lt", bound, operator.lt)


def le(bound: Any) -> Check:
    """Refuse numbers above *bound*."""
    return _bound("le", bound, operator.le)


def multiple_of(step: Any) -> Check:
    """Refuse numbers that *step* does not divide."""
    if step == 0:
        raise ValueError("nothing is a multiple of zero")
    return _bound("multiple_of", step, lambda value, step: value % step == 0)


def length(wanted: int) -> Check:
    """Refuse what has not exactly *wanted* characters or items."""
    return _length("length", wanted, lambda size: size == wanted)


def min_length(least: int) -> Check:
    """Refuse what is shorter than *least*."""
    return _length("min_length", least, lambda size: size >= least)


def max_length(most: int) -> Check:
    """Refuse what is longer than *most*."""
    return _length("max_length", most, lambda size: size <= most)


def pattern(wanted: str | re.Pattern[str]) -> Check:
    """Refuse text that does not match as a whole."""
    compiled = re.compile(wanted)

    def check(value: Any) -> None:
        if not isinstance(value, str) or compiled.fullmatch(value) is None:
            raise Invalid("pattern")

    return check


def one_of(choices: Iterable[Any]) -> Check:
    """Refuse what is not among *choices*."""
    listed = tuple(choices)

    def check(value: Any) -> None:
        if not _is_among(value, listed):
            raise Invalid("one_of", one_of=_listing(listed))

    return check


def none_of(choices: Iterable[Any]) -> Check:
    """Refuse what is among *choices*."""
    listed = tuple(choices)

    def check(value: Any) -> None:
        if _is_among(value, listed):
            raise Invalid("none_of", none_of=_listing(listed))

    return check


def by_callable(validate: Callable[[Any], Any]) -> Check:
    """Refuse what *validate* raises ``ValueError`` for, or returns False for."""

    def check(value: Any) -> None:
        try:
            answer = validate(value)
        except ValueError as error:
            code = getattr(error, "code", None) or "invalid"
            raise Invalid(code, str(error) or None) from None
        if answer is False:
            raise Invalid("invalid")

    return check


def by_predicate(holds: Callable[[Any], Any]) -> Check:
    """Refuse what *holds* does not hold for."""
    return by_callable(lambda value: bool(holds(value)))


def check_all(checks: Iterable[Check], value: Any) -> None:
    """Have all *checks* look at *value* before it is refused."""
    problems = []
    for check in checks:
        try:
            check(value)
        except Invalid as invalid:
            problems.append(invalid)
    if problems:
        raise Invalid.together(problems)


VALIDATORS: dict[str, Callable[[Any], Check]] = {
    each.__name__: each
    for each in (
        presence, absence, gt, ge, lt, le, multiple_of, length, min_length, max_length,
        pattern, one_of, none_of,
    )
}  # fmt: skip


def constraints_of(metadata: Iterable[Any]) -> list[Check]:
    """
    Read the constraints of ``Annotated[...]`` as annotated-types writes them.

    An object says what it wants by attributes named like the validators here, or by
    a predicate ``func``; groups are iterated; a plain callable is a validator.
    """
    checks: list[Check] = []
    for each in metadata:
        wishes = [
            (name, value)
            for name in VALIDATORS
            if (value := getattr(each, name, None)) is not None and not callable(value)
        ]
        if isinstance(each, re.Pattern):  # itself, for its flags
            checks.append(pattern(each))
        elif wishes:
            checks += [VALIDATORS[name](value) for name, value in wishes]
        elif hasattr(each, "__is_annotated_types_grouped_metadata__"):
            checks += constraints_of(each)
        elif callable(each) and not isinstance(each, type):
            checks.append(by_callable(each))
        elif callable(getattr(each, "func", None)):
            checks.append(by_predicate(each.func))
    return checks


def _bound(code: str, bound: Any, fits: Callable[[Any, Any], Any]) -> Check:
    def check(value: Any) -> None:
        try:
            if fits(value, bound):
                return
        except (TypeError, ArithmeticError):
            raise Invalid("numeric") from None
        raise Invalid(code, **{code: bound})

    return check


def _length(code: str, wanted: int, fits: Callable[[int], bool]) -> Check:
    if not isinstance(wanted, int) or wanted < 0:
        raise ValueError("a length is a whole number from 0 on")

    def check(value: Any) -> None:
        if not isinstance(value, Sized):
            raise Invalid("sized")
        if not fits(len(value)):
            raise Invalid(code, **{code: wanted})

    return check


def _is_among(value: Any, choices: tuple[Any, ...]) -> bool:
    try:
        return value in choices
    except ArithmeticError:  # a signaling NaN equals nothing
        return False


def _is_blank(value: Any) -> bool:
    if isinstance(value, str):
        return not value.strip()
    return value is None or (isinstance(value, Sized) and len(value) == 0)


def _listing(choices: Iterable[Any]) -> str:
    return ", ".join(map(str, choices))
