"""
How values of an annotation are stored, so that they come back the same.

1. a value is encoded without tags, and decoded again    ``Codec.encode``
2. if it came back as another one, the same with tags
3. if that is not the same either, it is refused

``cmdx.wire.encoding`` and ``cmdx.wire.decoding`` know nothing of annotations; a codec
adds the coercion of one annotation to them.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import attrs

from cmdx.inputs.coercion import Unknown, coercer
from cmdx.inputs.errors import Invalid
from cmdx.inputs.scalars import Coercer, as_is
from cmdx.wire.decoding import decode, named_classes
from cmdx.wire.encoding import TAG, UNSTORABLE, canonical_text, encode

if TYPE_CHECKING:
    from collections.abc import Mapping

INTEGER_LIMIT = 2**63
"""Whole numbers below this have few enough digits for every reader of JSON."""


@attrs.frozen
class Codec:
    """How values of one annotation are stored."""

    coerce: Coercer
    classes: Mapping[str, Any]
    """The classes in the annotation, by name."""
    is_stream: bool = False
    """Whether values are read once, and so cannot be stored or compared."""

    @classmethod
    def of(
        cls, annotation: Any, names: Mapping[str, Any], coerce: Coercer | None = None
    ) -> Codec:
        """Return the codec of *annotation*; *coerce* takes the place of its coercer."""
        try:
            chosen = coercer(annotation, names) if coerce is None else coerce
            return cls(chosen, named_classes(annotation, names))
        except (Unknown, NameError):
            return cls(coerce or as_is, {})

    def encode(self, value: Any) -> Any:
        """Return *value* as JSON from which it comes back; raise ``Invalid`` if not."""
        if _is_plain(value) and self.coerce(value) is value:
            return value  # most inputs need no trial
        try:
            tagged = encode(value, tagged=True)
            text = canonical_text(tagged)
            for stored in (self._untagged(value), tagged):
                round_trip = self._round_trip(stored)
                is_read = stored is not None or value is None  # null is read as None
                if is_read and canonical_text(round_trip) == text:
                    return stored
        except RecursionError:
            raise too_deep() from None
        refusal = Invalid(UNSTORABLE, "would come back as another value")
        for step in reversed(_steps_to_difference(tagged, round_trip)):
            refusal = refusal.below(step)
        raise refusal

    def decode(self, stored: Any) -> Any:
        """Return the value behind *stored*, or raise ``Invalid``."""
        try:
            return self.coerce(decode(stored, self.classes))
        except RecursionError:
            raise too_deep() from None

    def _untagged(self, value: Any) -> Any:
        try:
            return encode(value, tagged=False)
        except Invalid:
            return None

    def _round_trip(self, stored: Any) -> Any:
        """Return what comes back as JSON with tags, None if nothing does."""
        try:
            return encode(self.decode(json.loads(json.dumps(stored))), tagged=True)
        except Invalid:
            return None


ANYTHING = Codec(as_is, {})
"""How values without an annotation are stored."""


def too_deep() -> Invalid:
    """Return the refusal of data that is nested too deeply, or contains itself."""
    return Invalid(UNSTORABLE, Invalid("too_deep").message)


def _is_plain(value: Any) -> bool:
    """Tell whether *value* is text, a truth value or a number of usual size."""
    kind = type(value)
    if kind is int:
        return bool(-INTEGER_LIMIT < value < INTEGER_LIMIT)
    return kind in (str, bool) or (kind is float and math.isfinite(value))


def _steps_to_difference(before: Any, after: Any) -> list[str]:
    """Return the steps to the first part of two JSON values that differs."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in before:
            if canonical_text(before[key]) != canonical_text(after.get(key)):
                steps = [] if TAG in before else [str(key)]
                return [*steps, *_steps_to_difference(before[key], after.get(key))]
    if isinstance(before, list) and isinstance(after, list):
        for number, (item, other) in enumerate(zip(before, after, strict=False)):
            if canonical_text(item) != canonical_text(other):
                return [f"[{number}]", *_steps_to_difference(item, other)]
    return []
