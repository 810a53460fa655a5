"""A chain as one page that needs nothing else."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from time import thread_time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pictured_shop import NASTY_SHOWN, SECRETS, chain_with_failed_rollback, nasty_chain

from cmdx import Chain, Task, retry_on
from cmdx.pictures import chain_html, chain_svg


class Page(HTMLParser):
    """A page, read back."""

    def __init__(self, text):
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.rows: list[list[str]] = []
        self.cell = False
        self.title = self.heading = ""
        self.where = ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.where = tag
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
        self.cell = tag in ("td", "th") or (self.cell and tag == "span")

    def handle_endtag(self, tag):
        self.cell = self.cell and tag not in ("thead", "tbody")

    def handle_data(self, data):
        if self.cell:
            self.rows[-1][-1] += data.rstrip("\n")
        if self.where == "title" and not self.title:
            self.title = data


@pytest.fixture(scope="module")
def page(chain):
    return Page(chain_html(chain))


# -- what is there --------------------------------------------------------------


def test_the_table_has_a_row_for_each_result_in_the_order_of_the_tree(page):
    tried = "TimeoutError, TimeoutError, failed"
    undone = "thrown from ChargeCard · ✗ rollback failed: OSError"

    assert page.rows == [
        ["task", "status", "reason", "retries", "duration", "attempts"],
        ["Checkout", "failed", "card declined · thrown from Pay", "0", "1.00 s", ""],
        ["ValidateCart", "success", "", "0", "100 ms", ""],
        ["ReserveStock", "success", "", "0", "400 ms", ""],
        ["QuoteShipping", "success", "", "0", "290 ms", ""],
        ["ApplyVoucher", "skipped", "no voucher given", "0", "0 µs", ""],
        ["Pay", "failed", f"card declined · {undone}", "0", "500 ms", ""],
        ["ChargeCard", "failed", "card declined", "2", "500 ms", tried],
    ]


def test_the_drawing_is_on_the_page(chain):
    assert chain_svg(chain) in chain_html(chain)


def test_the_title_tells_what_became_of_it(page):
    assert page.title == "Checkout: failed after 1.00 s, 7 results, 1 rollback failed"


def test_the_filter_offers_each_status_and_how_many_there_are(chain):
    html = chain_html(chain)

    assert re.findall(r"checked>([^<]+)<", html) == [
        *("success 3", "skipped 1", "failed 3"),
    ]
    assert '<input type="search"' in html


@pytest.mark.usefixtures("still")
def test_a_rollback_that_failed_is_shown_as_an_error():
    html = chain_html(chain_with_failed_rollback())
    reasons = {row[0]: row[2] for row in Page(html).rows[1:]}

    assert reasons["Reserve"] == "✗ rollback failed: OSError"
    assert reasons["Book"] == "rolled back"
    assert '<span class="failed">✗ rollback failed: OSError</span>' in html
    assert '<p class="failed">1 rollback failed</p>' in html


@pytest.mark.usefixtures("still")
def test_a_long_reason_does_not_hide_a_rollback_that_failed():
    class Talkative(Task[None]):
        def work(self) -> None:
            self.fail("a" * 5000)

        def rollback(self) -> None:
            raise OSError

    (_, row) = Page(chain_html(Talkative.execute().chain)).rows

    assert row[2].endswith("aaa… · ✗ rollback failed: OSError")


@pytest.mark.usefixtures("still")
def test_many_attempts_are_summed_up():
    @retry_on(ValueError, OSError, limit=9, delay=0)
    class Flaky(Task[None]):
        def work(self) -> None:
            if self.attempt < 9:
                raise OSError if self.attempt % 2 else ValueError

    page = Page(chain_html(Flaky.execute().chain))

    assert (
        page.rows[1][-1] == "ValueError, OSError, ValueError, OSError, 5 more, success"
    )


def test_a_chain_that_still_runs_says_so():
    class Child(Task[None]):
        def work(self) -> None: ...

    class Parent(Task[None]):
        def work(self) -> None:
            self.context.seen = chain_html(Child.execute().chain)

    html = Parent.execute().context.seen

    assert "<h1>Still running</h1>" in html
    assert len(Page(html).rows) == 2


def test_a_chain_without_results_is_a_page():
    assert len(Page(chain_html(Chain())).rows) == 1


# -- what is not ----------------------------------------------------------------


def test_the_page_loads_nothing_and_forbids_itself_to(page, chain):
    loading = [
        (tag, name)
        for tag, attributes in page.tags
        for name in attributes
        if name in ("src", "href", "action", "srcset", "data")
    ]
    policy = next(
        attributes["content"]
        for _, attributes in page.tags
        if attributes.get("http-equiv") == "Content-Security-Policy"
    )

    assert loading == []
    assert policy.split(";")[0] == "default-src 'none'"
    assert (
        re.findall(
            r"@import|url\((?!#)|fetch\(|https?://(?!www\.w3\.org/2000/svg)",
            chain_html(chain),
        )
        == []
    )


def test_nothing_secret_is_shown(chain):
    html = chain_html(chain)

    assert [secret for secret in SECRETS if secret in html] == []


def test_names_and_reasons_are_shown_as_they_are():
    html = chain_html(nasty_chain())
    page = Page(html)
    name, _, reason, *_ = page.rows[1]

    assert name[:70] == NASTY_SHOWN[:70]
    assert reason == NASTY_SHOWN
    assert [tag for tag, _ in page.tags].count("script") == 1


@given(st.text(max_size=60))
def test_any_reason_leaves_the_table_whole(reason):
    class Failing(Task[None]):
        def work(self) -> None:
            self.fail(reason)

    page = Page(chain_html(Failing.execute().chain))

    assert [len(row) for row in page.rows] == [6, 6]
    assert [tag for tag, _ in page.tags].count("script") == 1


# -- many results ---------------------------------------------------------------

MANY = 10_000
BYTES = 5_000_000


@retry_on(ConnectionError, limit=2, delay=0)
class ImportOneProduct(Task[int]):
    """One of many; some are flaky, some are skipped, some fail at length."""

    def work(self) -> int:
        number = self.context.number
        if number % 10 == 0:
            self.fail(f"product {number} is unknown & was <never> sold: " + "x" * 300)
        if number % 7 == 0:
            self.skip("nothing has changed")
        if number % 5 == 0 and self.attempt < 2:
            raise ConnectionError("no answer")
        return number


class ImportProducts(Task[None]):
    def work(self) -> None:
        for number in range(self.context.count):
            ImportOneProduct.execute(number=number)


@pytest.fixture(scope="module")
def many():
    return ImportProducts.execute(count=MANY).chain


def test_ten_thousand_results_take_less_than_five_megabytes(many):
    assert len(chain_html(many).encode()) < BYTES


def cpu_seconds(chain):
    """Return the least CPU time of several calls, which other processes do not use."""

    def measure():
        start = thread_time()
        chain_html(chain)
        return thread_time() - start

    return min(measure() for _ in range(3))


def test_a_page_takes_linear_time(many):
    quarter = ImportProducts.execute(count=MANY // 4).chain

    # 16 for quadratic work; measured as a ratio, so that the machine does not matter.
    assert cpu_seconds(many) < 10 * cpu_seconds(quarter)


def test_ten_thousand_results_that_all_fail_at_length_still_fit():
    class Failing(Task[None]):
        def work(self) -> None:
            self.fail("it went wrong again, " * 30)

    class Parent(Task[None]):
        def work(self) -> None:
            for _ in range(MANY):
                Failing.execute()

    chain = Parent.execute().chain

    assert len(chain) == MANY + 1
    assert len(chain_html(chain).encode()) < BYTES


def test_none_of_ten_thousand_results_is_left_out(many):
    html = chain_html(many)

    assert html.count("\n<tr class=") == MANY + 1
    assert html.count('<g class="row ') == MANY + 1
    assert "product 9990 is unknown &amp; was &lt;never&gt; sold" in html


# -- lightness ------------------------------------------------------------------


def test_the_core_does_not_import_the_pictures():
    program = "import sys, cmdx; sys.exit('cmdx.pictures' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0  # noqa: S603


@pytest.mark.parametrize("heavy", ["asyncio", "structlog", "html", "xml", "json"])
def test_importing_the_pictures_stays_light(heavy):
    program = f"""if True:
        import sys, cmdx
        before = set(sys.modules)
        import cmdx.pictures
        sys.exit({heavy!r} in set(sys.modules) - before)
    """

    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0  # noqa: S603
