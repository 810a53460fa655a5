"""The picture of the states is drawn from the machine."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from cmdx.delivery.machine import TRANSITIONS

DOCS = Path(__file__).parents[2] / "docs"


def drawing():
    path = DOCS / "draw_states.py"
    spec = importlib.util.spec_from_file_location("draw_states", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_picture_of_the_docs_is_what_the_machine_says():
    stored = (DOCS / "_static" / "courier-states.svg").read_text("utf-8")
    assert stored == drawing().draw(), "run python docs/draw_states.py"


def test_every_way_between_two_states_is_an_arrow():
    picture = drawing().draw()
    assert picture.count("<polygon") == len(TRANSITIONS)
