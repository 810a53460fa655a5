"""The timeline of a chain as a drawing."""

from __future__ import annotations

import re
from itertools import pairwise
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pictured_shop import (
    NASTY_SHOWN,
    SECRETS,
    TIMES,
    chain_with_failed_rollback,
    nasty_chain,
    spend,
    visit,
)

from cmdx import Chain, Task, Workflow, retry_on
from cmdx.pictures import chain_notebook, chain_svg
from cmdx.pictures.layout import MARGIN, NARROWEST_BAR, RIGHT, SMALL_LETTER, WIDTH

SVG = "{http://www.w3.org/2000/svg}"
STATUSES = ["failed", "success", "success", "success", "skipped", "failed", "failed"]


class Drawing:
    """A drawing, read back."""

    def __init__(self, text):
        self.root = ET.fromstring(text)  # noqa: S314 -- we wrote it
        self.rows = self.all("g", "row")
        self.left = self.places("bar")[0][0] if self.rows else None

    def all(self, tag, style, within=None):
        return [
            element
            for element in (self.root if within is None else within).iter(SVG + tag)
            if style in element.get("class", "").split()
        ]

    def one(self, tag, style, row):
        (element,) = self.all(tag, style, self.rows[row])
        return element

    def places(self, style):
        """The x and the width of boxes."""
        boxes = self.all("rect", style)
        return [(float(box.get("x")), float(box.get("width"))) for box in boxes]

    def x(self, seconds):
        """Where a time should be, when the whole chain takes a second."""
        return self.left + seconds * (RIGHT - self.left)

    def texts(self, style):
        return ["".join(element.itertext()) for element in self.all("text", style)]

    def middle(self, row):
        """The height at which a bar is."""
        _, y = numbers(self.rows[row].get("transform"))
        bar = self.one("rect", "bar", row)
        return y + float(bar.get("y")) + float(bar.get("height")) / 2


def numbers(text):
    return [float(number) for number in re.findall(r"-?\d*\.?\d+(?:e-?\d+)?", text)]


def approximately(*values):
    return pytest.approx(values, abs=0.02)


def note(drawing, row):
    return ["".join(element.itertext()) for element in drawing.all("text", "note", row)]


@pytest.fixture(scope="module")
def drawing(chain):
    return Drawing(chain_svg(chain))


# -- bars -----------------------------------------------------------------------


def test_there_is_one_bar_for_each_result_where_its_times_say(drawing):
    expected = [
        approximately(
            drawing.x(start), max(drawing.x(width) - drawing.left, NARROWEST_BAR)
        )
        for start, width in TIMES.values()
    ]

    assert drawing.places("bar") == expected


def test_bars_are_coloured_by_status(drawing):
    assert [row.get("class").split()[1] for row in drawing.rows] == STATUSES


def test_bars_are_one_below_the_other_in_tree_order(drawing):
    heights = [drawing.middle(row) for row in range(len(drawing.rows))]

    assert heights == sorted(set(heights))
    assert drawing.texts("name") == [
        "✗ Checkout",
        "✓ ValidateCart",
        "✓ ReserveStock",
        "✓ QuoteShipping",
        "○ ApplyVoucher",
        "✗ Pay",
        "✗ ChargeCard2 retries",
    ]


def test_the_bar_of_a_task_that_ran_others_is_thin(drawing):
    heights = [float(bar.get("height")) for bar in drawing.all("rect", "bar")]

    assert heights == [6, 12, 12, 12, 12, 6, 12]


def test_names_are_left_of_the_bars_and_durations_right(drawing):
    durations = drawing.all("text", "time")

    assert drawing.texts("time") == [
        *("1.00 s", "100 ms", "400 ms", "290 ms", "0 µs", "500 ms", "500 ms"),
    ]
    assert all(float(element.get("x")) > RIGHT for element in durations)
    assert all(
        float(element.get("x")) < drawing.left
        for element in drawing.all("text", "name")
    )


def test_names_are_indented_below_their_parents(drawing):
    places = [float(element.get("x")) for element in drawing.all("text", "name")]

    assert places[0] < places[1] == places[2] == places[5] < places[6]


def test_the_scale_has_round_times_where_they_are(drawing):
    (axis,) = drawing.all("g", "axis")
    labels = [
        (element.text, float(element.get("x"))) for element in axis.iter(SVG + "text")
    ]

    assert labels == [
        ("0", pytest.approx(drawing.x(0), abs=0.02)),
        *(
            (f"{number} ms", pytest.approx(drawing.x(number / 1000), abs=0.02))
            for number in (200, 400, 600, 800, 1000)
        ),
    ]


@pytest.mark.parametrize(
    ("seconds", "last"),
    [
        (7200, "2 h"),
        (130, "2 min"),
        (60, "60 s"),
        (3.1, "3 s"),
        (0.0451, "40 ms"),
        (0.00012, "120 µs"),
        (0.0000004, "0.4 µs"),
    ],
)
@pytest.mark.usefixtures("still")
def test_the_scale_suits_the_duration(seconds, last):
    class Busy(Task[None]):
        def work(self) -> None:
            spend(seconds)

    (axis,) = Drawing(chain_svg(Busy.execute().chain)).all("g", "axis")
    labels = [element.text for element in axis.iter(SVG + "text")]

    assert labels[0] == "0"
    assert labels[-1] == last
    assert 3 <= len(labels) <= 7


@pytest.mark.usefixtures("still")
def test_a_run_that_took_no_time_is_drawn():
    class Nothing(Task[None]):
        def work(self) -> None: ...

    drawing = Drawing(chain_svg(Nothing.execute().chain))

    assert drawing.places("bar") == [(drawing.left, NARROWEST_BAR)]
    assert drawing.texts("time") == ["0 µs"]


def test_a_chain_without_results_is_drawn():
    drawing = Drawing(chain_svg(Chain()))

    assert drawing.rows == []
    assert drawing.root.find(f"{SVG}title").text == "still running, 0 results"


def test_the_drawing_has_a_title_for_those_who_cannot_see_it(drawing):
    assert drawing.root.get("role") == "img"
    assert (
        drawing.root.find(f"{SVG}title").text
        == "Checkout: failed after 1.00 s, 7 results, 1 rollback failed"
    )


# -- attempts -------------------------------------------------------------------


def test_a_tick_marks_the_start_of_each_attempt(drawing):
    ticks = drawing.one("path", "tick", 6).get("d")

    assert numbers(ticks)[::3] == [
        pytest.approx(drawing.x(start), abs=0.02) for start in (0.5, 0.7, 0.9)
    ]
    assert len(drawing.all("path", "tick")) == 2  # and the one in the legend


def test_pauses_are_hatched(drawing):
    pauses = drawing.one("path", "pause", 6)
    (pattern,) = drawing.root.iter(f"{SVG}pattern")
    boxes = numbers(pauses.get("d"))

    assert pauses.get("fill") == f"url(#{pattern.get('id')})"
    assert [*boxes[0::5], *boxes[2::5]] == [
        pytest.approx(value, abs=0.02)
        for value in (
            drawing.x(0.6),
            drawing.x(0.8),
            *[drawing.x(0.1) - drawing.left] * 2,
        )
    ]


@pytest.mark.usefixtures("still")
def test_failed_attempts_of_a_success_are_red():
    @retry_on(ValueError, limit=1, delay=0)
    class Flaky(Task[None]):
        def work(self) -> None:
            spend(0.5)
            if self.attempt == 0:
                raise ValueError

    drawing = Drawing(chain_svg(Flaky.execute().chain))
    x, _, width, *_ = numbers(drawing.one("path", "error", 0).get("d"))

    assert (x, width) == approximately(drawing.left, drawing.x(0.5) - drawing.left)


@pytest.mark.usefixtures("still")
def test_attempts_too_close_together_are_drawn_once():
    @retry_on(ValueError, limit=999, delay=0)
    class Flaky(Task[None]):
        def work(self) -> None:
            spend(0.001)
            raise ValueError

    drawing = Drawing(chain_svg(Flaky.execute().chain))
    starts = numbers(drawing.one("path", "tick", 0).get("d"))[::3]

    assert 300 < len(starts) < 600
    assert all(b - a >= 1.49 for a, b in pairwise(starts))


# -- lanes, arrows and marks ----------------------------------------------------


def test_what_ran_at_the_same_time_is_shaded_and_bracketed(drawing):
    lanes = drawing.all("g", "lanes")[0]
    shade, bracket = lanes.find(f"{SVG}rect"), lanes.find(f"{SVG}path")
    top = float(shade.get("y"))
    bottom = top + float(shade.get("height"))
    left = float(shade.get("x"))

    assert left == pytest.approx(drawing.x(0.1), abs=0.02)
    assert left + float(shade.get("width")) == pytest.approx(drawing.x(0.5), abs=0.02)
    assert drawing.middle(1) < top < drawing.middle(2)
    assert drawing.middle(3) < bottom < drawing.middle(4)
    assert lanes.find(f"{SVG}title").text == "2 at the same time"
    x, start, _, end, _ = numbers(bracket.get("d"))
    assert (left - 6 < x < left, start, end) == (True, top, bottom)


def test_an_arrow_leads_from_a_thrown_failure_to_its_origin(drawing):
    arrows = drawing.all("path", "origin")[:2]
    heads = drawing.all("path", "head")[:2]

    for arrow, head, (thrower, origin) in zip(
        arrows, heads, [(0, 5), (5, 6)], strict=True
    ):
        x, start, turn, end, stop = numbers(arrow.get("d"))
        tip_x, tip_y, *_ = numbers(head.get("d"))
        assert (start, end) == (drawing.middle(thrower), drawing.middle(origin))
        assert (tip_x, tip_y) == (pytest.approx(stop - 4, abs=0.02), end)
        assert x < turn < WIDTH
        assert stop < turn
        marked = 15 if drawing.all("path", "undo", drawing.rows[origin]) else 0
        assert tip_x == pytest.approx(RIGHT + 3 + marked, abs=0.02)


def test_what_was_rolled_back_is_marked(drawing):
    marked = [
        row
        for row, group in enumerate(drawing.rows)
        if drawing.all("path", "undo", group)
    ]

    assert marked == [5]


@pytest.mark.usefixtures("still")
def test_a_rollback_that_failed_is_shown_as_an_error():
    drawing = Drawing(chain_svg(chain_with_failed_rollback()))
    _, reserve, book, _ = drawing.rows

    assert note(drawing, reserve) == ["✗ rollback failed: OSError"]
    assert note(drawing, book) == ["rolled back"]
    for element in ("path", "text"):
        assert len(drawing.all(element, "rollback-failed", reserve)) == 1
        assert drawing.all(element, "rollback-failed", book) == []
    assert reserve.find(f"{SVG}title").text.endswith(": ✗ rollback failed: OSError")
    (legend,) = drawing.all("g", "legend")
    assert {"rolled back", "rollback failed"} <= set(legend.itertext())
    rules = drawing.root.find(f"{SVG}style").text
    assert ".undo.rollback-failed{stroke:#d93a3a}" in rules


def test_reasons_are_below_the_bars(drawing):
    assert [note(drawing, row) for row in drawing.rows] == [
        ["thrown from Pay"],
        [],
        [],
        [],
        ["no voucher given"],
        ["thrown from ChargeCard · ✗ rollback failed: OSError"],
        ["card declined"],
    ]


@pytest.mark.parametrize(
    ("reason", "shown"),
    [("a" * 60, "a" * 60), ("&" * 60, "&" * 60), ("a" * 900, "a" * 117 + "…")],
    ids=["that fits", "that is escaped", "that is cut"],
)
@pytest.mark.usefixtures("still")
def test_a_long_note_of_a_late_bar_is_further_to_the_left(reason, shown):
    class Late(Task[None]):
        def work(self) -> None:
            spend(0.01)
            self.skip(reason)

    class Root(Task[None]):
        def work(self) -> None:
            spend(0.99)
            Late.execute()

    drawing = Drawing(chain_svg(Root.execute().chain))
    (text,) = drawing.all("text", "note")
    end = float(text.get("x")) + len(shown) * SMALL_LETTER

    assert text.text == shown
    assert drawing.left <= float(text.get("x")) < drawing.x(0.99)
    assert end == pytest.approx(WIDTH - MARGIN, abs=0.02)


@pytest.mark.usefixtures("still")
def test_a_note_is_left_of_an_arrow_that_would_cross_it():
    class Waiting(Task[None]):
        def work(self) -> None:
            spend(0.95)

    class Skipped(Task[None]):
        def work(self) -> None:
            self.skip("there was nothing to do")

    class Failing(Task[None]):
        def work(self) -> None:
            spend(0.05)
            self.fail("no")

    class Root(Workflow[None]):
        steps = (Waiting, Skipped, Failing)

    drawing = Drawing(chain_svg(Root.execute().chain))
    arrow = drawing.all("path", "origin")[0]
    _, _, turn, *_ = numbers(arrow.get("d"))
    text = drawing.one("text", "note", 2)

    assert text.text == "there was nothing to do"
    assert drawing.left < float(text.get("x"))
    assert float(text.get("x")) + len(text.text) * SMALL_LETTER < turn


@pytest.mark.usefixtures("still")
@pytest.mark.parametrize("letters", range(8, 31))
def test_the_longest_name_is_not_shortened(letters):
    def fail_once(self):
        if self.attempt < 2:
            raise TimeoutError

    name = "N" * letters
    long = type("Long", (Task,), {"work": fail_once, "__qualname__": name})
    root = type("Root", (Workflow,), {"steps": (retry_on(TimeoutError)(long),)})
    drawing = Drawing(chain_svg(root.execute().chain))

    assert drawing.texts("name")[1] == f"✓ {name}2 retries"


def test_the_legend_explains_what_is_there_and_nothing_else(drawing):
    (legend,) = drawing.all("g", "legend")
    (plain,) = Drawing(chain_svg(visit_of_one().chain)).all("g", "legend")

    assert list(legend.itertext()) == [
        *("success", "skipped", "failed", "attempt", "pause"),
        *("at the same time", "thrown from", "rollback failed"),
    ]
    assert list(plain.itertext()) == ["success"]


def visit_of_one():
    class Alone(Task[None]):
        def work(self) -> None: ...

    return Alone.execute()


# -- text -----------------------------------------------------------------------


def test_names_and_reasons_are_shown_as_they_are():
    drawing = Drawing(chain_svg(nasty_chain()))
    (row,) = drawing.rows

    assert row.find(f"{SVG}title").text == f"{NASTY_SHOWN}, from 0 µs: {NASTY_SHOWN}"
    assert note(drawing, row)[0][:40] == NASTY_SHOWN[:40]
    assert not list(drawing.root.iter(f"{SVG}script"))


@given(st.text(max_size=60))
def test_any_reason_leaves_the_drawing_well_formed(reason):
    class Failing(Task[None]):
        def work(self) -> None:
            self.fail(reason)

    text = chain_svg(Failing.execute().chain)

    assert len(Drawing(text).rows) == 1
    assert text.encode()


@pytest.mark.parametrize("letter", ["W", "界"])
def test_a_long_name_is_shortened_and_complete_in_the_tooltip(letter):
    name = letter * 200
    long = type("Long", (Task,), {"work": lambda _: None, "__qualname__": name})
    drawing = Drawing(chain_svg(long.execute().chain))
    (text,) = drawing.texts("name")
    wide = 2 if letter == "界" else 1

    assert text.endswith(f"{letter}…")
    assert len(text) * wide * 7 < drawing.left
    assert drawing.rows[0].find(f"{SVG}title").text.startswith(name)


@pytest.mark.usefixtures("still")
def test_names_of_deeply_nested_tasks_stay_left_of_the_bars():
    class Nested(Task[None]):
        def work(self) -> None:
            if self.context.left:
                self.context.left -= 1
                Nested.execute(self)

    drawing = Drawing(chain_svg(Nested.execute(left=50).chain))
    places = [float(element.get("x")) for element in drawing.all("text", "name")]

    assert len(places) == 51
    assert places == sorted(places)
    assert places[-1] + len("✓ Nested") * 7.3 < drawing.left


def test_nothing_secret_is_shown(chain):
    text = chain_svg(chain)

    assert [secret for secret in SECRETS if secret in text] == []


def test_the_same_chain_is_drawn_the_same_again(chain):
    assert chain_svg(chain) == chain_svg(chain)


# -- beside other things --------------------------------------------------------


def test_rules_reach_nothing_outside_the_drawing(drawing):
    rules = drawing.root.find(f"{SVG}style").text
    selectors = re.findall(
        r"([^{}]+)\{", rules.replace("@media(prefers-color-scheme:dark)", "")
    )

    assert len(selectors) > 20
    for selector in ",".join(selectors).split(","):
        assert not selector or selector.startswith(".cmdx-timeline ")


def test_there_are_colours_for_light_and_dark(drawing):
    rules = drawing.root.find(f"{SVG}style").text
    light, _, dark = rules.partition("@media(prefers-color-scheme:dark)")

    for name in ("card", "bar", "note", "tick", "hatch", "origin", "undo"):
        selector = rf"\.{name}(,[^{{}}]*)?{{(fill|stroke):#\w{{6}}"
        assert re.search(selector, light), name
        assert re.search(selector, dark), name


def test_two_drawings_on_one_page_do_not_share_ids(chain):
    ids = [re.findall(r' id="([^"]+)"', chain_svg(run)) for run in (chain, visit())]

    assert [len(found) for found in ids] == [1, 1]
    assert ids[0] != ids[1]


def test_nothing_is_loaded(chain):
    text = chain_svg(chain)

    assert re.findall(r"(?:href|src|@import|url\((?!#cmdx-pause-))", text) == []


def test_a_notebook_shows_the_drawing(chain):
    assert chain_svg(chain) in chain_notebook(chain)
    assert "more" not in chain_notebook(chain)


def test_a_notebook_shows_the_beginning_of_a_long_chain():
    class Child(Task[None]):
        def work(self) -> None: ...

    class Parent(Task[None]):
        def work(self) -> None:
            for _ in range(1299):
                Child.execute()

    html = chain_notebook(Parent.execute().chain)

    assert html.count('<g class="row') == 200
    assert "and 1 100 more" not in html
    assert "<p>and 1\u202f100 rows more: see chain.to_html()</p>" in html
