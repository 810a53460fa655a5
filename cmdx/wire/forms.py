"""
How values of an annotation are stored, so that they come back the same.

1. a value is encoded without tags, and read again       ``Form.store``
2. if it came back as another one, the same with tags
3. if that is not the same either, it is refused
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import attrs

from cmdx.inputs.coercion import Unknown, coercer
from cmdx.inputs.errors import Invalid
from cmdx.inputs.scalars import Coercer, as_is
from cmdx.wire.decoding import decode, kinds_in
from cmdx.wire.encoding import CODE, TAG, canonical_text, encode

if TYPE_CHECKING:
    from collections.abc import Mapping

LARGEST = 2**63
"""Whole numbers below this have few enough digits for every reader of JSON."""


@attrs.frozen
class Form:
    """How values of one annotation are stored."""

    coerce: Coercer
    kinds: Mapping[str, Any]
    """The classes in the annotation, by name."""
    is_stream: bool = False
    """Whether values are read once, and so cannot be stored or compared."""

    @classmethod
    def of(
        cls, annotation: Any, names: Mapping[str, Any], coerce: Coercer | None = None
    ) -> Form:
        """Return the form of *annotation*; *coerce* takes the place of its coercer."""
        try:
            made = coercer(annotation, names) if coerce is None else coerce
            return cls(made, dict(kinds_in(annotation, names)))
        except (Unknown, NameError):
            return cls(coerce or as_is, {})

    def store(self, value: Any) -> Any:
        """Return *value* as JSON from which it comes back; raise ``Invalid`` if not."""
        if _is_plain(value) and self.coerce(value) is value:
            return value  # most inputs need no trial
        try:
            whole = encode(value, tagged=True)
            text = canonical_text(whole)
            for tagged in (False, True):
                stored = whole if tagged else self._plain(value)
                again = self._read_again(stored)
                if canonical_text(again) == text:
                    return stored
        except RecursionError:
            raise Invalid("too_deep") from None
        refusal = Invalid(CODE, "would come back as another value")
        for step in reversed(_difference(whole, again)):
            refusal = refusal.below(step)
        raise refusal

    def load(self, stored: Any) -> Any:
        """Return the value behind *stored*, or raise ``Invalid``."""
        try:
            return self.coerce(decode(stored, self.kinds))
        except RecursionError:
            raise Invalid("too_deep") from None

    def _plain(self, value: Any) -> Any:
        try:
            return encode(value, tagged=False)
        except Invalid:
            return None

    def _read_again(self, stored: Any) -> Any:
        """Return what comes back as JSON with tags, None if nothing does."""
        try:
            return encode(self.load(json.loads(json.dumps(stored))), tagged=True)
        except Invalid:
            return None


ANYTHING = Form(as_is, {})
"""How values without an annotation are stored."""


def _is_plain(value: Any) -> bool:
    """Tell whether *value* is text, a truth value or a whole number of usual size."""
    kind = type(value)
    return kind in (str, bool) or (kind is int and -LARGEST < value < LARGEST)


def _difference(before: Any, after: Any) -> list[str]:
    """Return the steps to the first part of two JSON values that differs."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in before:
            if canonical_text(before[key]) != canonical_text(after.get(key)):
                steps = [] if TAG in before else [str(key)]
                return [*steps, *_difference(before[key], after.get(key))]
    if isinstance(before, list) and isinstance(after, list):
        for number, (item, other) in enumerate(zip(before, after, strict=False)):
            if canonical_text(item) != canonical_text(other):
                return [f"[{number}]", *_difference(item, other)]
    return []
