"""
The validators: each takes the value of an option and returns a check.

A check looks at one value and raises ``Invalid`` if it breaks the rule.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sized
from typing import TYPE_CHECKING, Any, TypeAlias

from cmdx.inputs.blank import is_blank_text
from cmdx.inputs.constraints import NAMES, constraints_in
from cmdx.inputs.errors import Invalid, broken, error_code

if TYPE_CHECKING:
    from collections.abc import Iterable

Check: TypeAlias = Callable[[Any], None]


def presence(wanted: bool) -> Check:  # noqa: FBT001 -- the value of an option
    """Refuse None, blank text and empty containers; False and 0 are present."""

    def check(value: Any) -> None:
        if _is_empty(value):
            raise broken("presence")

    return check if wanted else _accept


def absence(wanted: bool) -> Check:  # noqa: FBT001 -- the value of an option
    """Refuse everything that is present."""

    def check(value: Any) -> None:
        if not _is_empty(value):
            raise broken("absence")

    return check if wanted else _accept


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
        raise ValueError("it must not be zero")
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
            raise broken("pattern")

    return check


def one_of(choices: Iterable[Any]) -> Check:
    """Refuse what is not among *choices*."""
    listed = tuple(choices)

    def check(value: Any) -> None:
        if not _is_among(value, listed):
            raise broken("one_of", one_of=listing(listed))

    return check


def none_of(choices: Iterable[Any]) -> Check:
    """Refuse what is among *choices*."""
    listed = tuple(choices)

    def check(value: Any) -> None:
        if _is_among(value, listed):
            raise broken("none_of", none_of=listing(listed))

    return check


def user_check(validate: Callable[[Any], Any]) -> Check:
    """
    Refuse a value if *validate* raises ``ValueError``, or returns False or text.

    The text, raised or returned, is the message, unless it is the text of a library,
    which often quotes the value.
    """

    def check(value: Any) -> None:
        try:
            answer = validate(value)
        except Invalid as invalid:
            raise invalid.by_rule("validate") from None
        except Exception as error:
            foreign = is_foreign(error)
            if not foreign and not isinstance(error, ValueError):
                raise
            text = None if foreign else str(error) or None
            raise broken("validate", error_code(error), text) from None
        if answer is False:
            raise broken("validate", "invalid")
        if isinstance(answer, str) and answer:
            raise broken("validate", "invalid", answer)

    return check


def is_foreign(error: Exception) -> bool:
    """
    Tell whether an error was raised by a library rather than by the user's validator.

    Those of pydantic list what they found; what is written in C, such as ``int``, has
    no frame of its own.
    """
    traceback = error.__traceback__
    is_from_c = traceback is not None and traceback.tb_next is None
    is_listing = callable(getattr(error, "errors", None))
    return is_from_c or is_listing or isinstance(error, UnicodeError)


def predicate_check(holds: Callable[[Any], Any]) -> Check:
    """
    Refuse a value for which *holds* returns something false or raises.

    The text is not shown, because it often quotes the value, as that of a coercer does.
    """

    def check(value: Any) -> None:
        try:
            fits = holds(value)
        except Exception as error:
            raise broken("validate", error_code(error)) from None
        if not fits:
            raise broken("validate", "invalid")

    return check


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
    name: globals()[name] for name in NAMES
}
"""The validators that are options of ``required`` and ``optional``."""

WITHOUT_PLACEHOLDER = ("presence", "absence", "pattern")
"""The rules whose values are not for people to read."""

CHECKS = VALIDATORS | {"validate": user_check, "predicate": predicate_check}
"""What makes the checks of the constraints in ``Annotated``."""


def checks_in(annotation: Any) -> list[Check]:
    """Return the checks of the constraints in *annotation*, the innermost first."""
    return [CHECKS[name](value) for name, value in constraints_in(annotation)]


def placeholders_of(rules: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Return the values of *rules* as messages show them, by the names of the rules."""
    return {
        name: listing(value) if name in ("one_of", "none_of") else value
        for name, value in rules
        if name in NAMES and name not in WITHOUT_PLACEHOLDER
    }


def listing(choices: Iterable[Any]) -> str:
    """Return *choices* as messages show them."""
    return ", ".join(map(str, choices))


def _accept(_: Any) -> None:
    """Refuse nothing."""


def _bound(code: str, bound: Any, fits: Callable[[Any, Any], Any]) -> Check:
    def check(value: Any) -> None:
        try:
            if fits(value, bound):
                return
        except (TypeError, ArithmeticError):
            raise broken(code, "numeric") from None
        raise broken(code, **{code: bound})

    return check


def _length(code: str, wanted: int, fits: Callable[[int], bool]) -> Check:
    if not isinstance(wanted, int) or wanted < 0:
        raise ValueError("it must be a whole number, 0 or more")

    def check(value: Any) -> None:
        if not isinstance(value, Sized):
            raise broken(code, "sized")
        if not fits(len(value)):
            raise broken(code, **{code: wanted})

    return check


def _is_empty(value: Any) -> bool:
    if isinstance(value, str):
        return is_blank_text(value)
    return value is None or (isinstance(value, Sized) and len(value) == 0)


def _is_among(value: Any, choices: tuple[Any, ...]) -> bool:
    try:
        return value in choices
    except ArithmeticError:  # a signaling NaN equals nothing
        return False
