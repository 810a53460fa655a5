"""
What is wrong with a value, and the words for it.

A check that fails raises ``Invalid`` with a code. The message for the code comes from
one catalogue, ``messages``, which can be changed, for example to another language::

    cmdx.messages.update(required="fehlt", int="muss eine ganze Zahl sein")
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from cmdx.inputs.texts import string_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cmdx.inputs.texts import Text

messages: dict[str, Text] = {
    "required": "is required",
    "none": "must not be null",
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
    "set": "must be a list",
    "set_item": "must only have items that can be hashed",
    "dict": "must be a mapping",
    "length_of_tuple": "must have {length} items",
    "object": "must be a mapping of the fields of {name}",
    "union": "must be one of {kinds}",
    "instance": "must be an instance of {name}",
    "subclass": "must be {name} or a class derived from it",
    "callable": "must be callable",
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
"""One sentence for each code; ``{name}`` is replaced by a value the check provides."""

_BUILT_IN = dict(messages)


class Invalid(Exception):  # noqa: N818 -- it says what a value is
    """
    A value was refused.

    ``path`` leads to the part of the value that is wrong; ``rule`` is the rule that
    refused it, "coerce" if it could not be converted; ``others`` are more problems with
    the same value.

    Args:
        code: Identifies the problem, and selects the message in the catalogue.
        message: The message, instead of the one in the catalogue.
        values: The values of the placeholders in the message.
    """

    def __init__(
        self, code: str, message: Text | None = None, /, **values: Any
    ) -> None:
        super().__init__(code)
        self.code = code
        self.values = values
        self.path = ""
        self.rule = "coerce"
        self.others: list[Invalid] = []
        self._message = message
        self._text: Text | None = None

    @property
    def message(self) -> str:
        """The sentence for people."""
        if self._message is not None:
            return str(string_of(self._message))
        text = self._text
        if text is None:
            built_in = _BUILT_IN.get(self.code, _BUILT_IN["invalid"])
            text = messages.get(self.code, built_in)
        text = string_of(text)
        try:
            return str(text.format(**self.values))
        except (LookupError, TypeError, ValueError, AttributeError):
            return str(text)  # it names a value that the check does not provide

    def below(self, step: str) -> Invalid:
        """Return the same problems, with *step* before all paths."""
        problems = [problem._with_step(step) for problem in self.all()]
        return Invalid.together(problems)

    def by_rule(self, rule: str) -> Invalid:
        """Return the same problems, found by *rule*."""
        problems = [problem._copy(rule=rule, others=[]) for problem in self.all()]
        return Invalid.together(problems)

    def reworded(self, texts: Mapping[str, Text], values: Mapping[str, Any]) -> Invalid:
        """
        Return the same problems, in the words that *texts* has for their rules.

        Problems of a part of the value keep their messages.

        Args:
            texts: The messages by rule.
            values: The values of more placeholders.
        """
        problems = [problem._in_words(texts, values) for problem in self.all()]
        return Invalid.together(problems)

    def all(self) -> list[Invalid]:
        """Return this problem and the others."""
        return [self, *self.others]

    @classmethod
    def together(cls, problems: list[Invalid]) -> Invalid:
        """Join several problems into one exception, and leave them as they are."""
        first, *others = [part for problem in problems for part in problem.all()]
        return first._copy(others=others)

    def _with_step(self, step: str) -> Invalid:
        return self._copy(path=path_below(step, self.path), others=[])

    def _in_words(
        self, texts: Mapping[str, Text], values: Mapping[str, Any]
    ) -> Invalid:
        if self.path or self.rule not in texts:
            return self._copy(others=[])
        return self._copy(
            others=[],
            values={**values, **self.values},
            _message=None,
            _text=texts[self.rule],
        )

    def _copy(self, **changes: Any) -> Invalid:
        # A new one each time: whoever raised it may raise the same object again.
        copied = type(self).__new__(type(self), *self.args)
        vars(copied).update(vars(self), **changes)
        return copied


def broken(
    rule: str, code: str | None = None, message: str | None = None, /, **values: Any
) -> Invalid:
    """Return the problem of a value that breaks *rule*, which is also the code."""
    invalid = Invalid(code or rule, message, **values)
    invalid.rule = rule
    return invalid


def path_below(step: str, path: str) -> str:
    """Return *path* with *step* before it: ``order.lines``, ``lines[2]``."""
    dot = "." if path and not path.startswith("[") else ""
    return f"{step}{dot}{path}"


def error_code(error: Exception) -> str:
    """Return the ``code`` of an error, "invalid" if it has none."""
    code = getattr(error, "code", None)
    return code if isinstance(code, str) and code else "invalid"


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

    def add(self, key: str, message: Text, code: str | None = None) -> None:
        """
        Add a problem.

        Args:
            key: The name of what is wrong, such as an input.
            message: The rest of the sentence that begins with *key*.
            code: The same in every language, for programs.
        """
        text = str(string_of(message))
        self._problems.setdefault((key, text), Problem(key, text, code))

    def add_invalid(self, key: str, invalid: Invalid) -> None:
        """Add all problems of the value for *key*."""
        for problem in invalid.below(key).all():
            self.add(problem.path, problem.message, problem.code)

    def merge(
        self,
        other: Errors | Mapping[str, Sequence[str]],
        prefix: str | None = None,
    ) -> None:
        """
        Add the problems of others, such as those of a task that this one has run.

        Example::

            for number, line in enumerate(self.lines):
                self.errors.merge(AddLine.check(line), prefix=f"lines[{number}]")

        Args:
            other: Other errors, or messages by key as ``to_dict()`` returns them.
            prefix: The path to what they belong to; with ``"address"``, the key
                ``zip`` becomes ``address.zip``, and ``[2]`` becomes ``address[2]``.
        """
        for key, message, code in problems_in(other):
            self.add(path_below(prefix, key) if prefix else key, message, code)

    def delete(self, key: str) -> list[str]:
        """Remove all problems of *key*, and return their messages."""
        removed = [problem for problem in self if problem.key == key]
        for problem in removed:
            del self._problems[key, problem.message]
        return [problem.message for problem in removed]

    def clear(self) -> None:
        """Remove all problems."""
        self._problems.clear()

    def keys(self) -> list[str]:
        """Return the keys that have problems, in the order they were found."""
        return list(self.to_dict())

    def freeze(self) -> FrozenErrors:
        """Return the problems there are now, as errors that cannot be changed."""
        return FrozenErrors(self._problems)

    def __getitem__(self, key: str) -> list[str]:
        """Return the messages for *key*, an empty list if there are none."""
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
        """Join the sentences of all problems."""
        return ". ".join(self.full_messages())

    def __repr__(self) -> str:
        """Show the messages by key."""
        return f"Errors({self.to_dict()!r})"


class FrozenErrors(Errors):
    """The errors of a result, which cannot be changed."""

    __slots__ = ()

    def __init__(self, problems: Mapping[tuple[str, str], Problem]) -> None:
        self._problems = dict(problems)

    def add(self, key: str, message: Text, code: str | None = None) -> None:
        """Refuse the change."""
        del key, message, code
        refuse_change()

    def merge(
        self,
        other: Errors | Mapping[str, Sequence[str]],
        prefix: str | None = None,
    ) -> None:
        """Refuse the change."""
        del other, prefix
        refuse_change()

    def delete(self, key: str) -> list[str]:
        """Refuse the change."""
        del key
        refuse_change()

    def clear(self) -> None:
        """Refuse the change."""
        refuse_change()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle with the problems."""
        return FrozenErrors, (self._problems,)


def problems_in(other: object) -> list[Problem]:
    """Return the problems of errors, or of a mapping of messages by key."""
    if isinstance(other, Errors):
        return list(other)
    if isinstance(other, Mapping) and all(map(are_messages, other.values())):
        return [Problem(key, text) for key in other for text in other[key]]
    message = (
        "merge takes errors, such as result.errors, or a mapping of keys to lists of "
        f"messages, as to_dict() returns it; got {type(other).__qualname__}"
        f"{' with other values' if isinstance(other, Mapping) else ''}."
    )
    raise TypeError(message)


def are_messages(value: object) -> bool:
    """Tell whether *value* is a list of texts; one text alone is not."""
    if isinstance(value, str) or not isinstance(value, Sequence):
        return False
    return all(isinstance(text, str) for text in value)


def refuse_change() -> NoReturn:
    """Raise: a result cannot be changed."""
    message = (
        "the errors of a result cannot be changed. "
        "Add to self.errors in work, callbacks or middlewares."
    )
    raise TypeError(message)
