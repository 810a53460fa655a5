r"""
Regular expressions of Python in the syntax of ECMA-262, as JSON Schema has them.

A pattern is cut into tokens, and each token is translated by the table below. A pattern
with something that ECMA-262 cannot express has no translation: flags, conditions,
atomic groups, possessive quantifiers, references to groups that need not have matched,
and words, which consist of ASCII letters there, unless the pattern has ``re.ASCII``.

``\d`` and ``\s`` are kept, though ``\d`` means the digits 0 to 9 there: many validators
do not know ``\p{Nd}``, which would mean the same.
"""

from __future__ import annotations

import re
import unicodedata
from itertools import zip_longest
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ESCAPE = r"\\(?:x..|u.{4}|U.{8}|N\{[^}]*\}|0[0-7]{0,2}|[0-3][0-7]{2}|[0-9]{1,2}|.)"

TOKEN = re.compile(
    rf"""
    (?P<comment>    \(\?\#[^)]*\) )
  | (?P<name>       \(\?P<\w+> )
  | (?P<reference>  \(\?P=\w+\) | \\(?!0|[0-3][0-7]{{2}})[0-9]{{1,2}} )
  | (?P<group>      \((?!\?) | \(\?: )
  | (?P<lookaround> \(\?<?[=!] )
  | (?P<foreign>    \(\? )
  | (?P<close>      \) )
  | (?P<quantifier> (?: [*+?] | \{{(?!\}})\d*(?:,\d*)?\}} ) [?+]? )
  | (?P<set>        \[\^?\]?(?:{ESCAPE}|[^\]\\])*\] )
  | (?P<escape>     {ESCAPE} )
  | (?P<any>        \. )
  | (?P<end>        \$ )
  | (?P<bar>        \| )
  | (?P<literal>    . )
    """,
    re.VERBOSE | re.DOTALL,
)
ITEM = re.compile(rf"{ESCAPE}|.", re.DOTALL)

SHARED = frozenset(r"dDwWsSbBnrtvf^$\.*+?()[]{}|/")
"""What a backslash before means the same in both."""
HEX_DIGITS = 4
"""What ``\\u`` takes without braces."""
TRANSLATED = {"A": "^", "Z": "$", "z": "$", "a": r"\u0007"}


def ecma_pattern(pattern: re.Pattern[str]) -> str | None:
    """Return *pattern* in the syntax of ECMA-262, or None if that cannot express it."""
    if pattern.flags & ~(re.UNICODE | re.ASCII) or _means_other_words(pattern):
        return None
    tokens = list(TOKEN.finditer(pattern.pattern))
    if not _is_common(tokens):
        return None
    parts = [TRANSLATIONS[str(token.lastgroup)](token) for token in tokens]
    return None if None in parts else "".join(part or "" for part in parts)


def _means_other_words(pattern: re.Pattern[str]) -> bool:
    """Tell whether *pattern* asks for words, and they are not those of ECMA-262."""
    items = set(ITEM.findall(pattern.pattern))
    if r"\B" in items:  # between nothing and nothing there is one only there
        return True
    return not pattern.flags & re.ASCII and not items.isdisjoint((r"\w", r"\W", r"\b"))


def _is_common(tokens: list[re.Match[str]]) -> bool:
    """Tell whether repeated groups and references mean the same in both."""
    kinds = {token.lastgroup for token in tokens}
    repeated = set(_repeated_groups(tokens))
    if "lookaround" in repeated:
        return False
    # A reference to a group that did not match fails in Python, and succeeds there.
    return "reference" not in kinds or not (repeated or {"bar", "lookaround"} & kinds)


def _repeated_groups(tokens: list[re.Match[str]]) -> Iterator[str]:
    """Yield the kinds of the groups that have a quantifier."""
    solid = [token for token in tokens if token.lastgroup != "comment"]
    opened: list[str] = []
    for token, following in zip_longest(solid, solid[1:]):
        if token.lastgroup in ("name", "group", "lookaround", "foreign"):
            opened.append(token.lastgroup)
        elif token.lastgroup == "close":
            kind = opened.pop()
            if following is not None and following.lastgroup == "quantifier":
                yield kind


def _quantifier(token: re.Match[str]) -> str | None:
    text = token[0]
    if len(text) > 1 and text.endswith("+"):  # possessive
        return None
    return text.replace("{,", "{0,")


def _reference(token: re.Match[str]) -> str:
    text = token[0]
    if text.startswith("\\"):
        return f"(?:{text})"  # a digit may follow
    return f"\\k<{text[4:-1]}>"


def _end(token: re.Match[str]) -> str:
    """Return what matches at the end, or before a line break at the end."""
    return "$" if token.end() == len(token.string) else r"(?=\n?$)"


def _set(token: re.Match[str]) -> str | None:
    text = token[0][1:-1]
    negation = "^" if text.startswith("^") else ""
    items = ITEM.findall(text[len(negation) :])
    parts = [
        _escape(item) if len(item) > 1 else f"\\{item}" if item in "[]" else item
        for item in items
    ]
    return None if None in parts else f"[{negation}{''.join(map(str, parts))}]"


def _literal(token: re.Match[str]) -> str:
    return f"\\{token[0]}" if token[0] in "]{}" else token[0]


def _escape(text: str) -> str | None:
    letter = text[1]
    if letter.isdigit():
        return _character(int(text[1:], 8))
    if letter in "xuU":
        return _character(int(text[2:], base=16))  # noqa: FURB166 -- no prefix of Python's
    if letter == "N":
        return _character(ord(unicodedata.lookup(text[3:-1])))
    if letter in SHARED or letter == "-":
        return text
    return TRANSLATED.get(letter, letter)


def _character(number: int) -> str | None:
    if unicodedata.category(chr(number)) == "Cs":  # half of a pair of surrogates
        return None
    digits = f"{number:04x}"
    return f"\\u{digits}" if len(digits) == HEX_DIGITS else f"\\u{{{digits}}}"


TRANSLATIONS: dict[str, Callable[[re.Match[str]], str | None]] = {
    "comment": lambda _: "",
    "name": lambda token: token[0].replace("(?P<", "(?<"),
    "reference": _reference,
    "group": lambda token: token[0],
    "lookaround": lambda token: token[0],
    "foreign": lambda _: None,
    "close": lambda token: token[0],
    "quantifier": _quantifier,
    "set": _set,
    "escape": lambda token: "-" if token[0] == r"\-" else _escape(token[0]),
    "any": lambda _: r"[^\n]",
    "end": _end,
    "bar": lambda token: token[0],
    "literal": _literal,
}
