"""Keys that parallel steps wrote with different values are shown in every picture."""

from __future__ import annotations

import pytest

from cmdx import Task, Workflow, parallel


class Left(Task[None]):
    """Writes its name."""

    def work(self) -> None:
        self.context.side = type(self).__name__


class Right(Left):
    """Writes another name under the same key."""


class Both(Workflow[None]):
    """Has two steps that disagree."""

    steps = (parallel(Left, Right),)


class OneSide(Workflow[None]):
    """Has steps that agree."""

    steps = (parallel(Left, Left),)


@pytest.mark.parametrize("picture", ["to_mermaid", "to_svg", "to_html", "tree"])
def test_conflicting_writes_are_shown(picture):
    assert "conflicting writes" in readable(Both, picture)
    assert "conflicting writes" not in readable(OneSide, picture)


def readable(workflow, picture):
    text = getattr(workflow.execute().chain, picture)()
    return text.replace("#58;", ":")
