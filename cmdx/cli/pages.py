"""The timeline of a run as an HTML page, which ``run`` and ``demo`` write."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from cmdx.cli.targets import Misuse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cmdx import Chain


@contextmanager
def open_page(path: str | None, *, opens: bool) -> Iterator[Callable[[Chain], None]]:
    """
    Yield what writes the timeline of a chain, or does nothing without a *path*.

    A file that cannot be written is a ``Misuse`` at once, before anything is run.

    Args:
        path: Where to write it.
        opens: Whether a browser opens the page as well.
    """
    if path is None:
        yield lambda _: None
        return
    try:
        file = Path(path).open("w", encoding="utf-8")  # noqa: SIM115 -- closed below
    except OSError as error:
        message = f"{path} cannot be written: {error.strerror}. Name another file."
        raise Misuse(message) from None

    def write(chain: Chain) -> None:
        file.write(chain.to_html())
        sys.stderr.write(f"The timeline is in {path}.\n")

    with file:
        yield write
    if opens:
        open_in_browser(path)


def open_in_browser(path: str) -> None:
    """Show a page in the browser of the user."""
    import webbrowser

    webbrowser.open(Path(path).resolve().as_uri())
