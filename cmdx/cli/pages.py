"""The timeline of a run as an HTML page, which ``run`` and ``demo`` write."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

from cmdx.cli.targets import Misuse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TextIO

    from cmdx import Chain


@contextmanager
def open_page(path: str | None, *, opens: bool) -> Iterator[Callable[[Chain], bool]]:
    """
    Yield what writes the timeline of a chain, and tells whether it could.

    A file that cannot be written is a ``Misuse`` at once, before anything is run.

    Args:
        path: Where to write it; without one, nothing is written.
        opens: Whether a browser opens the page as well.
    """
    if path is None:
        yield lambda _: True
        return
    with ExitStack() as stack:
        try:
            write_text = text_writer(Path(path), stack)
        except OSError as error:
            message = f"{path} cannot be written: {error.strerror}. Name another file."
            raise Misuse(message) from None

        def write(chain: Chain) -> bool:
            try:
                write_text(chain.to_html())
            except OSError as error:
                sys.stderr.write(f"{path} was not written: {error.strerror}.\n")
                return False
            sys.stderr.write(f"The timeline is in {path}.\n")
            if opens:
                open_in_browser(path)
            return True

        yield write


def text_writer(page: Path, stack: ExitStack) -> Callable[[str], None]:
    """Return what writes a text to *page*; raise ``OSError`` if nothing can."""
    if not is_replaceable(page):
        # The standard output may be a file that has the tree already.
        mode = "a" if page.is_relative_to("/dev") else "w"
        file = cast("TextIO", page.open(mode, encoding="utf-8"))
        stack.callback(close_quietly, file)
        return partial(write_at_once, file)
    if page.exists():
        page.open("a").close()
    beside = page.with_name(f".{page.name}.{os.getpid()}")
    beside.touch()
    beside.unlink()  # an interrupted run leaves nothing behind
    return partial(replace_page, page, beside)


def is_replaceable(page: Path) -> bool:
    """Tell whether another file may take the place of *page*."""
    # ``/dev/stdout`` is a link, and leads to a file if the output is redirected.
    if page.is_symlink():
        return False
    return not page.exists() or (page.is_file() and os.access(page.parent, os.W_OK))


def replace_page(page: Path, beside: Path, text: str) -> None:
    """Write *text* beside *page*, then replace it, so that it is never half."""
    try:
        beside.write_text(text, "utf-8")
        if page.exists():
            beside.chmod(page.stat().st_mode)
        beside.replace(page)
    finally:
        beside.unlink(missing_ok=True)


def write_at_once(file: TextIO, text: str) -> None:
    """Write *text* to a device, a pipe or a link, after what was printed."""
    sys.stdout.flush()
    file.write(text)
    file.flush()


def close_quietly(file: TextIO) -> None:
    """Close *file*; that it cannot be written was told before."""
    with suppress(OSError):
        file.close()


def open_in_browser(path: str) -> None:
    """Show a page in the browser of the user."""
    import webbrowser

    webbrowser.open(Path(path).resolve().as_uri())
