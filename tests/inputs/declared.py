"""What several tests of declarations share."""

from __future__ import annotations

import re

import pytest

from cmdx import DefinitionError, Task


class Greet(Task[str]):
    """The task most tests derive from."""

    name: str
    greeting: str = "Hello"

    def work(self) -> str:
        return f"{self.greeting}, {self.name}!"


def refused(*parts):
    """Expect a ``DefinitionError`` whose sentence has all the *parts*, in order."""
    return pytest.raises(DefinitionError, match=".*".join(map(re.escape, parts)))
