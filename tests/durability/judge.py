"""
What must hold for every operation, whatever was killed: a pure reading of the journal.

lost            it has no answer in the end; or an effect that somebody was told of is
                not there; or it ended indeterminate although it may run again
doubled         more than one effect, though it is not idempotent
contradicting   two outcomes were told; or a call that began after an outcome was told
                got something else; or the effect of a failure was kept by ``within=``
"""

from __future__ import annotations

from collections import Counter

import attrs

OUTCOMES = ("success", "failed")
ANSWERS = (*OUTCOMES, "indeterminate")


@attrs.define
class History:
    """What is known of one operation."""

    key: str
    effects: list = attrs.Factory(list)
    """The tokens of its effects."""
    told: list = attrs.Factory(list)
    lines: list = attrs.Factory(list)

    def add(self, kind, line):
        self.lines.append(line)
        if line["what"] == ("row" if kind.is_within else "effect"):
            self.effects.append(line["token"])
        if line["what"] == "told":
            self.told.append(line)

    @property
    def outcomes(self):
        """The outcomes that somebody was told, without repetition."""
        told = [line for line in self.told if line["answer"] in OUTCOMES]
        return sorted({(line["answer"], line["token"]) for line in told})

    @property
    def final(self):
        """The last answer to the process that checks."""
        answers = [line["answer"] for line in self.told if line["who"] == "checker"]
        return answers[-1] if answers else "none"


def histories_of(kind, lines):
    """Return the history of each operation in a journal."""
    histories = {}
    for line in lines:
        if line["what"] != "broke":
            key = line["key"]
            histories.setdefault(key, History(key)).add(kind, line)
    return list(histories.values())


def broken_promises(kind, history):
    """Return the promises that a history breaks, each with a sentence."""
    checks = (losses(kind, history), doubles(kind, history), conflicts(kind, history))
    return [promise for found in checks for promise in found]


def losses(kind, history):
    if history.final not in ANSWERS:
        yield "lost", f"the last answer is {history.final!r}"
    if history.final == "indeterminate" and kind.may_run_again:
        yield "lost", "it may run again, but ended indeterminate"
    for answer, token in history.outcomes:
        has_effect = answer == "success" or not kind.is_within
        if has_effect and token not in history.effects:
            yield "lost", f"the effect {token} was told, but is not there"


def doubles(kind, history):
    if len(history.effects) > 1 and not kind.idempotent:
        yield "doubled", f"there are {len(history.effects)} effects"


def conflicts(kind, history):
    if len(history.outcomes) > 1:
        yield "contradicting", f"different outcomes were told: {history.outcomes}"
    elif history.outcomes:
        yield from later_conflicts(history)
    if kind.is_within and history.effects and history.final != "success":
        yield "contradicting", f"it has an effect, but ended as {history.final!r}"


def later_conflicts(history):
    """Yield what was told to calls that began after the outcome was told."""
    told = [line for line in history.told if line["answer"] in OUTCOMES]
    first = min(line["ended"] for line in told)
    for line in history.told:
        is_outcome = line["answer"] in (*OUTCOMES, "unavailable")
        if line["began"] > first and not is_outcome:
            yield "contradicting", f"{line['answer']!r} after the outcome was told"


# -- counting --------------------------------------------------------------------------


def count_histories(kind, histories):
    """Return the numbers of the table, and what is broken."""
    counts, broken = Counter(), []
    for history in histories:
        promises = broken_promises(kind, history)
        for promise in {name for name, _ in promises}:
            counts[promise] += 1
        broken += [(name, text, history) for name, text in promises]
        add_counts(counts, kind, history)
    return counts, broken


def add_counts(counts, kind, history):
    outcomes = [line for line in history.told if line["answer"] in OUTCOMES]
    counts["operations"] += 1
    counts["effects"] += len(history.effects)
    counts["told"] += len(outcomes)
    counts["indeterminate"] += history.final == "indeterminate"
    counts["succeeded"] += history.final == "success"
    if kind.is_within:
        is_one = history.final == "success" and len(history.effects) == 1
        counts["exactly one"] += is_one


def kills_amid_calls(lines):
    """Return how many processes had asked for something they were never told."""
    unanswered = Counter()
    for line in lines:
        unanswered[line["who"]] += {"asked": 1, "told": -1}.get(line["what"], 0)
    return sum(number > 0 for number in unanswered.values())
