"""
Draw the pictures of a run that the docs show, from a real run.

Run ``python docs/draw_pictures.py``; it writes ``run.svg``, the same for light and dark
pages alone, and ``run.html`` into ``docs/_static``. If there is a browser, it also
writes ``run-page.png``. With the path of ``mermaid.min.js`` as an argument, it also
writes the two flowcharts.
"""

from __future__ import annotations

import asyncio
import html
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from cmdx import Chain, Task, Workflow, group, parallel, required, retry_on, step

STATIC = Path(__file__).parent / "_static"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FAILURES = 2
"""The number of attempts to ask the carrier that fail."""

# -- the run --------------------------------------------------------------------


class Reserve(Task[None]):
    async def work(self) -> None:
        await asyncio.sleep(0.08)

    async def rollback(self) -> None:
        await asyncio.sleep(0.02)


@retry_on(ConnectionError, limit=3, delay=0.05, jitter="exponential")
class AskCarrier(Task[None]):
    async def work(self) -> None:
        await asyncio.sleep(0.04)
        if self.attempt < FAILURES:
            raise ConnectionError("the carrier is busy")


class CheckFraud(Task[None]):
    async def work(self) -> None:
        await asyncio.sleep(0.12)


class ApplyVoucher(Task[None]):
    async def work(self) -> None:
        await asyncio.sleep(0.01)
        self.skip("no voucher given")


class Charge(Task[None]):
    async def work(self) -> None:
        await asyncio.sleep(0.09)
        self.fail("card declined")


class SendReceipt(Task[None]):
    async def work(self) -> None: ...


class Checkout(Workflow[None]):
    """Sell something."""

    total: int = required()

    steps = (
        Reserve,
        parallel(AskCarrier, CheckFraud, ApplyVoucher),
        group(Charge, if_="costs_something"),
        step(SendReceipt, on_failure="continue"),
    )

    def costs_something(self) -> bool:
        return self.total > 0


# -- the pictures ---------------------------------------------------------------


def main() -> None:
    """Run the workflow and draw the run."""
    chain = asyncio.run(Checkout.aexecute(total=12)).chain
    print(chain.tree())
    draw_timeline(chain.to_svg())
    (STATIC / "run.html").write_text(chain.to_html(), "utf-8")
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        return
    photograph(browser, STATIC / "run.html", STATIC / "run-page.png")
    if len(sys.argv) > 1:
        draw_flowcharts(browser, Path(sys.argv[1]), chain)


def draw_timeline(picture: str) -> None:
    """Write the timeline for any theme, and for each of the two alone."""
    dark_rules = re.compile(r"@media\(prefers-color-scheme:dark\)\{(.*)\}(?=</style>)")
    pictures = {
        "run.svg": picture,
        "run-light.svg": dark_rules.sub("", picture),
        "run-dark.svg": dark_rules.sub(r"\1", picture),
    }
    for name, drawn in pictures.items():
        (STATIC / name).write_text(drawn, "utf-8")


def draw_flowcharts(browser: str, mermaid: Path, chain: Chain) -> None:
    """Draw the steps of the workflow, and the results of the run."""
    flowcharts = {
        "workflow-flowchart.svg": Checkout.to_mermaid(),
        "run-flowchart.svg": chain.to_mermaid(),
    }
    for name, source in flowcharts.items():
        (STATIC / name).write_text(flowchart_svg(browser, mermaid, source), "utf-8")


def flowchart_svg(browser: str, mermaid: Path, source: str) -> str:
    """Return *source* as SVG, drawn by mermaid in the browser."""
    page = f"""<!doctype html><meta charset="utf-8">
        <pre class="mermaid">{html.escape(source)}</pre>
        <script src="{mermaid.resolve().as_uri()}"></script>
        <script>mermaid.initialize({{startOnLoad: true, htmlLabels: false,
            flowchart: {{htmlLabels: false}}, deterministicIds: true,
            fontFamily: "sans-serif"}})</script>"""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "page.html"
        path.write_text(page, "utf-8")
        dom = run(browser, "--virtual-time-budget=20000", "--dump-dom", path.as_uri())
    found = re.search(r"<svg.*</svg>", dom, re.DOTALL)
    if found is None:
        message = f"mermaid drew nothing: {dom}"
        raise RuntimeError(message)
    on_white = found[0].replace('style="', 'style="background: white; ', 1)
    return on_white.replace("<br>", "<br/>").replace("&nbsp;", "\xa0") + "\n"


def photograph(browser: str, page: Path, picture: Path) -> None:
    """Take a picture of a page."""
    size = "--window-size=1080,860"
    run(browser, size, f"--screenshot={picture}", page.resolve().as_uri())


def run(browser: str, *options: str) -> str:
    """Run the browser without a window and return what it prints."""
    command = [browser, "--headless", "--no-sandbox", "--disable-gpu", *options]
    done = subprocess.run(command, capture_output=True, check=True, text=True)  # noqa: S603
    return done.stdout


if __name__ == "__main__":
    main()
