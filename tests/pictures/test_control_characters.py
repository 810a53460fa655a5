"""Characters that control a terminal or the direction of text are in no picture."""

from __future__ import annotations

import re
import sys
import unicodedata

import pytest

from cmdx import Task, Workflow, retry_on, step
from cmdx.pictures import (
    chain_html,
    chain_mermaid,
    chain_notebook,
    chain_svg,
    workflow_mermaid,
)

JOINERS = "\N{ZERO WIDTH NON-JOINER}\N{ZERO WIDTH JOINER}"
CONTROLS = "".join(
    letter
    for letter in map(chr, range(sys.maxunicode + 1))
    if unicodedata.category(letter) in ("Cc", "Cf") and letter not in JOINERS
)
"""Controls such as ESC and BEL, and invisible formats such as those for direction."""


def named(name, base, **body):
    return type("Odd", (base,), {"__qualname__": name, **body})


def odd_chain():
    """Return the chain of a run whose names, reasons and errors are all controls."""
    error = named(CONTROLS, OSError)

    def fail(self):
        if self.attempt == 0:
            raise error
        self.fail(f"a{CONTROLS}b")

    def roll_back(_):
        raise error

    failing = named(CONTROLS, Task, work=fail, rollback=roll_back)
    retry_on(error, limit=1, delay=0)(failing)
    return named(CONTROLS, Workflow, steps=(failing,)).execute().chain


@pytest.mark.parametrize(
    "draw",
    [chain_mermaid, chain_svg, chain_html, chain_notebook],
    ids=lambda draw: draw.__name__,
)
def test_no_control_character_of_a_run_is_in_a_picture(draw):
    text = draw(odd_chain())

    assert set(CONTROLS) & set(text) <= {"\n"}
    assert "a\N{REPLACEMENT CHARACTER}" in text or "a#65533;" in text


def test_no_control_character_of_a_workflow_is_in_its_flowchart():
    odd = named(CONTROLS, Task, work=lambda _: None)
    steps = (step(odd, map={"x": CONTROLS}, into=CONTROLS),)
    text = workflow_mermaid(named(CONTROLS, Workflow, steps=steps))

    assert set(CONTROLS) & set(text) <= {"\n"}


def test_a_line_break_in_a_reason_does_not_begin_a_new_line():
    class Forged(Task[None]):
        def work(self) -> None:
            self.fail("no\nflowchart TD\r\nn9")

    text = chain_mermaid(Forged.execute().chain)

    assert len(re.findall("^ *flowchart", text, re.MULTILINE)) == 1
    assert "no flowchart TD n9" in text
