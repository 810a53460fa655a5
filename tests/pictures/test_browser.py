"""
The page and the drawing in a real browser.

Each page is given a script that looks at what the browser made of it and writes that
down; the browser then prints the page, and what it said on its console.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html import unescape
from itertools import pairwise
from typing import Any, NamedTuple

import pytest
from pictured_shop import NASTY_SHOWN, TIMES, nasty_chain

from cmdx import Task
from cmdx.pictures import chain_html, chain_svg

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
BROWSER = next(filter(None, map(shutil.which, BROWSERS)), None)
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--enable-logging=stderr",
    "--window-size=1200,1600",
    "--dump-dom",
)
DARK = "--blink-settings=preferredColorScheme=0"
PATIENCE = 120

pytestmark = pytest.mark.skipif(
    BROWSER is None,
    reason="no browser is installed; tests/pictures/install_chromium.sh does it",
)


class Seen(NamedTuple):
    """What the script noted, and what the console said."""

    noted: Any
    console: list[str]


@pytest.fixture(scope="module")
def look(tmp_path_factory):
    def look(html, script, *flags):
        folder = tmp_path_factory.mktemp("browser")
        page = folder / "page.html"
        noting = f"document.title = 'noted ' + JSON.stringify((() => {{{script}}})())"
        page.write_text(f"{html}<script>{noting}</script>", encoding="utf-8")
        profile = f"--user-data-dir={folder / 'profile'}"
        done = subprocess.run(  # noqa: S603 -- the browser that was found
            [BROWSER, *FLAGS, *flags, profile, page.as_uri()],
            capture_output=True,
            encoding="utf-8",
            timeout=PATIENCE,
            check=True,
        )
        noted = re.search(r"<title>noted (.*?)</title>", done.stdout, re.DOTALL)
        console = re.findall(r"CONSOLE.*", done.stderr)
        return Seen(noted and json.loads(unescape(noted[1])), console)

    return look


LOOK = """
const all = selector => [...document.querySelectorAll(selector)];
const box = element => {
  const {left, right, top, bottom, width} = element.getBoundingClientRect();
  return {left, right, top, bottom, width};
};
const behind = element => {
  for (let each = element; each; each = each.parentElement) {
    const colour = getComputedStyle(each).backgroundColor;
    if (colour !== "rgba(0, 0, 0, 0)") return colour;
  }
};
const fill = selector => getComputedStyle(document.querySelector(selector)).fill;
const inside = element => element.closest("svg");
const written = all("body *").filter(element =>
  !element.closest("script, style, title, defs")
  && [...element.childNodes].some(node => node.nodeType === 3 && node.data.trim()));
const search = document.querySelector("input[type=search]");
return {
  dark: matchMedia("(prefers-color-scheme: dark)").matches,
  loaded: performance.getEntriesByType("resource").length,
  drawing: box(document.querySelector("svg")),
  bars: all(".row .bar").map(box),
  names: all("svg .name").map(box),
  times: all("svg .time").map(box),
  notes: all("svg .note").map(box),
  legend: all("svg .legend text").map(box),
  texts: written.map(element => ({
    text: element.textContent.slice(0, 30),
    colour: getComputedStyle(element)[inside(element) ? "fill" : "color"],
    behind: inside(element) ? fill("svg .card") : behind(element),
    size: parseFloat(getComputedStyle(element).fontSize),
  })).concat(search ? [{
    text: "placeholder",
    colour: getComputedStyle(search, "::placeholder").color,
    behind: behind(search),
    size: parseFloat(getComputedStyle(search).fontSize),
  }] : []),
  fills: all(".row .bar").map(bar => getComputedStyle(bar).fill),
  card: fill("svg .card"),
  shade: fill("svg .lanes rect"),
  opacity: parseFloat(
    getComputedStyle(document.querySelector("svg .lanes rect")).fillOpacity),
  strokes: [".tick", ".hatch", ".origin", ".undo", ".lanes path"].map(
    selector => getComputedStyle(document.querySelector("svg " + selector)).stroke),
};
"""


@pytest.fixture(scope="module")
def light(look, chain):
    return look(chain_html(chain), LOOK)


@pytest.fixture(scope="module")
def dark(look, chain):
    return look(chain_html(chain), LOOK, DARK)


# -- the page -------------------------------------------------------------------


def test_the_console_is_really_read(look):
    seen = look("<p>", "console.error('that went wrong'); return 1")

    assert seen.noted == 1
    assert "that went wrong" in seen.console[0]


def test_there_is_no_error_on_the_console(light, dark):
    assert light.console == []
    assert dark.console == []


def test_nothing_is_loaded(light):
    assert light.noted["loaded"] == 0


def test_the_bars_are_where_the_data_says(light):
    bars = light.noted["bars"]
    root = bars[0]
    pixel = 1.5 / root["width"]

    shown = [
        ((bar["left"] - root["left"]) / root["width"], bar["width"] / root["width"])
        for bar in bars
    ]

    assert len(shown) == len(TIMES)
    for (start, width), expected in zip(shown, TIMES.values(), strict=True):
        assert start == pytest.approx(expected[0], abs=pixel)
        assert width == pytest.approx(expected[1], abs=2 * pixel)


def test_bars_are_coloured_by_status(light, dark):
    for seen in (light, dark):
        red, green, *_ = fills = seen.noted["fills"]
        amber = fills[4]
        assert fills == [red, green, green, green, amber, red, red]
        assert [name_of_hue(hue) for hue in (red, green, amber)] == [
            *("red", "green", "amber"),
        ]


def test_nothing_is_written_over_the_bars_or_past_the_edge(light):
    noted = light.noted
    first = noted["bars"][0]["left"]
    last = max(bar["right"] for bar in noted["bars"])

    assert all(name["right"] < first for name in noted["names"])
    assert all(time["left"] > last for time in noted["times"])
    for text in noted["times"] + noted["notes"] + noted["legend"]:
        assert text["right"] < noted["drawing"]["right"]
    assert overlapping(noted["legend"]) == []


def test_notes_are_below_their_bars_and_above_the_next(light):
    noted = light.noted
    rows = [0, 4, 5, 6]

    assert len(noted["notes"]) == len(rows)
    for note, row in zip(noted["notes"], rows, strict=True):
        assert note["top"] >= noted["bars"][row]["bottom"] - 1
        following = noted["bars"][row + 1 : row + 2]
        assert all(note["bottom"] <= bar["top"] for bar in following)


def overlapping(boxes):
    return [
        (one, other) for one, other in pairwise(boxes) if one["right"] > other["left"]
    ]


# -- light and dark -------------------------------------------------------------


def channels(colour):
    return [float(number) for number in re.findall(r"[\d.]+", colour)][:3]


def luminance(rgb):
    parts = [channel / 255 for channel in rgb]
    linear = [
        channel / 12.92 if channel <= 0.04045 else ((channel + 0.055) / 1.055) ** 2.4
        for channel in parts
    ]
    return sum(map(float.__mul__, (0.2126, 0.7152, 0.0722), linear))


def contrast(one, other):
    """The contrast of two colours as the accessibility guidelines define it."""
    low, high = sorted(map(luminance, (one, other)))
    return (high + 0.05) / (low + 0.05)


def blended(above, below, share):
    return [a * share + b * (1 - share) for a, b in zip(above, below, strict=True)]


def name_of_hue(colour):
    red, green, blue = channels(colour)
    if green > red and green > blue:
        return "green"
    if green > red / 2 and green > 2 * blue:
        return "amber"
    return "red" if red > 2 * green and red > 2 * blue else colour


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("rgb(0, 0, 0)", "rgb(255, 255, 255)", 21),
        ("rgb(119, 119, 119)", "rgb(255, 255, 255)", 4.48),
    ],
)
def test_contrast_is_computed_as_in_the_guidelines(one, other, expected):
    assert contrast(channels(one), channels(other)) == pytest.approx(expected, abs=0.01)


def test_the_browser_was_asked_for_light_and_for_dark(light, dark):
    assert (light.noted["dark"], dark.noted["dark"]) == (False, True)
    assert luminance(channels(light.noted["card"])) > 0.8
    assert luminance(channels(dark.noted["card"])) < 0.05


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_is_readable(scheme, request):
    noted = request.getfixturevalue(scheme).noted
    shade = channels(noted["card"])
    for _ in range(3):  # parallel tasks in parallel tasks in parallel tasks
        shade = blended(channels(noted["shade"]), shade, noted["opacity"])

    assert len(noted["texts"]) > 60
    for text in noted["texts"]:
        colour = channels(text["colour"])
        assert contrast(colour, channels(text["behind"])) >= 4.5, text
        if text["behind"] == noted["card"]:
            assert contrast(colour, shade) >= 4.5, text
        assert text["size"] >= 11, text


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_bars_and_marks_stand_out(scheme, request):
    noted = request.getfixturevalue(scheme).noted
    card = channels(noted["card"])

    for colour in noted["fills"] + noted["strokes"]:
        assert contrast(channels(colour), card) >= 3, colour


# -- the filter -----------------------------------------------------------------

FILTER = """
const form = document.forms[0];
const change = () => form.dispatchEvent(new Event("input"));
const shown = () => ({
  rows: [...document.querySelectorAll("tbody tr")]
    .filter(row => row.getBoundingClientRect().height > 0)
    .map(row => row.cells[0].textContent.trim()),
  bars: [...document.querySelectorAll("svg .row")]
    .filter(row => getComputedStyle(row).opacity === "1").length,
  said: form.shown.value,
});
const seen = {before: shown()};
form.text.value = "validatec"; change(); seen.name = shown();
form.text.value = "CARD DECLINED"; change(); seen.reason = shown();
form.status[2].click(); seen.both = shown();
form.text.value = ""; change(); seen.status = shown();
form.text.value = "nothing is called so"; change(); seen.none = shown();
form.text.value = ""; form.status[2].click(); seen.after = shown();
return seen;
"""


def test_rows_and_bars_are_filtered_by_text_and_status(look, chain):
    seen = look(chain_html(chain), FILTER)
    ok = ["ValidateCart", "ReserveStock", "QuoteShipping", "ApplyVoucher"]

    assert seen.console == []
    assert seen.noted == {
        "before": {"rows": list(TIMES), "bars": 7, "said": ""},
        "name": {"rows": ["ValidateCart"], "bars": 1, "said": "1 of 7"},
        "reason": {
            "rows": ["Checkout", "Pay", "ChargeCard"],
            "bars": 3,
            "said": "3 of 7",
        },
        "both": {"rows": [], "bars": 0, "said": "0 of 7"},
        "status": {"rows": ok, "bars": 4, "said": "4 of 7"},
        "none": {"rows": [], "bars": 0, "said": "0 of 7"},
        "after": {"rows": list(TIMES), "bars": 7, "said": ""},
    }


# -- what is hostile, what is long, what stands alone ---------------------------


def test_nothing_that_a_name_or_reason_says_is_run(look):
    script = """
        const cells = document.querySelector("tbody tr").cells;
        return [cells[2].textContent.trim(), document.scripts.length];
    """
    seen = look(chain_html(nasty_chain()), script)

    assert seen.console == []
    assert seen.noted == [NASTY_SHOWN, 2]


def test_a_drawing_on_a_page_that_is_not_ours_stays_itself(look, chain):
    script = """
        const text = document.querySelector("svg .failed .note");
        return [getComputedStyle(text).fill, getComputedStyle(document.body).color];
    """
    hostile = "<style>body{color:rgb(1,2,3)}</style>"
    alone, beside = (
        look(html, script) for html in (chain_svg(chain), hostile + chain_svg(chain))
    )

    assert alone.noted[0] == beside.noted[0]
    assert beside.noted[1] == "rgb(1, 2, 3)"
    assert alone.console == beside.console == []


def test_ten_thousand_results_open_without_an_error(look):
    class Child(Task[None]):
        def work(self) -> None: ...

    class Parent(Task[None]):
        def work(self) -> None:
            for _ in range(9_999):
                Child.execute()

    script = """
        const last = [...document.querySelectorAll("tbody tr")].pop();
        return [document.querySelectorAll("svg .bar").length,
                last.cells.length, last.getBoundingClientRect().height > 10];
    """
    seen = look(chain_html(Parent.execute().chain), script)

    assert seen.console == []
    assert seen.noted == [10_000, 6, True]
