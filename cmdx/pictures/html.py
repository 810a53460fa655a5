"""
A chain as one HTML page: the timeline, and a table that can be filtered.

The page loads nothing; its content security policy forbids it. To keep the pages of
long chains small, reasons are shortened, and only the table shows them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cmdx.outcome import Status
from cmdx.pictures.layout import conflict_text, origin_text, rollback_text
from cmdx.pictures.svg import failed_rollbacks_text, headline, timeline_svg
from cmdx.pictures.text import escape, quantity, truncate
from cmdx.pictures.theme import MARKS, MONOSPACE, SANS, style_sheet
from cmdx.pictures.timeline import timeline
from cmdx.report import duration_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cmdx.chain import Chain
    from cmdx.pictures.timeline import ResultRow, Timeline

MANY_ROWS = 2000
"""With more rows than this, only the table shows reasons."""
MOST_REASON_LETTERS = 1_000_000
"""The number of letters that all reasons together may have."""
LONGEST_REASON = 400
LONGEST_NAME = 80
MOST_ENDS = 5

HEADINGS = "<th>task<th>status<th>reason<th>retries<th>duration<th>attempts"
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"

SHAPES = (
    ":root{color-scheme:light dark}",
    f"body{{margin:0 auto;padding:24px;max-width:1100px;font:14px/1.5 {SANS}}}",
    "h1{margin:0;font-size:22px}",
    "header p{margin:2px 0 0}",
    "form{display:flex;flex-wrap:wrap;gap:8px 16px;align-items:center;margin:18px 0}",
    "form label{display:flex;gap:5px;align-items:center}",
    "input[type=search]{font:inherit;flex:1 1 240px;padding:6px 10px}",
    "input[type=search]{border:1px solid;border-radius:6px}",
    "div{overflow:auto;border-radius:8px}",
    ".picture{max-height:75vh;margin-bottom:20px}",
    ".picture svg{display:block;width:100%;min-width:880px;height:auto}",
    "table{width:100%;min-width:880px;border-collapse:collapse;table-layout:fixed}",
    "table{font-variant-numeric:tabular-nums}",
    "th,td{padding:5px 10px;text-align:left;vertical-align:top;overflow-wrap:anywhere}",
    "td{border-top:1px solid}",
    f"td:first-child{{font:13px/1.6 {MONOSPACE}}}",
    "th:nth-child(1){width:24%}",
    "th:nth-child(2){width:82px}",
    "th:nth-child(4){width:58px}",
    "th:nth-child(5){width:82px}",
    "th:nth-child(6){width:20%}",
    "th:nth-child(4),th:nth-child(5),td:nth-child(4),td:nth-child(5){text-align:right}",
    "td:nth-child(2){font-weight:600}",
    "::placeholder{opacity:1}",
)
COLOURS = (
    "body{background:page;color:text}",
    "table,input[type=search]{background:card;color:text}",
    "input[type=search]{border-color:branch}",
    "::placeholder{color:dim}",
    "td{border-color:line}",
    "th,td:nth-child(n+4),header p,output{color:dim}",
    ".s td:nth-child(2),.success{color:success-text}",
    ".k td:nth-child(2),.skipped{color:skipped-text}",
    ".f td:nth-child(2),.failed{color:failed-text}",
)
STYLE = style_sheet("", SHAPES, COLOURS)
LETTERS = {Status.SUCCESS: "s", Status.SKIPPED: "k", Status.FAILED: "f"}

SCRIPT = """
const form = document.forms[0], rows = [...document.querySelectorAll("tbody tr")];
const bars = document.querySelectorAll("svg .row");
let texts;
function show() {
  const wanted = form.text.value.toLowerCase();
  const off = [...form.status].filter(box => !box.checked).map(box => box.value);
  let shown = 0;
  texts ??= rows.map(row => row.textContent.toLowerCase());
  rows.forEach((row, i) => {
    const away = off.includes(row.className) || !texts[i].includes(wanted);
    row.hidden = away;
    bars[i].classList.toggle("away", away);
    shown += !away;
  });
  form.shown.value = shown < rows.length ? shown + " of " + rows.length : "";
}
form.addEventListener("input", show);
form.addEventListener("submit", event => event.preventDefault());
if (form.text.value || [...form.status].some(box => !box.checked)) show();
"""


def chain_html(chain: Chain) -> str:
    """Return *chain* as an HTML document without external parts."""
    line = timeline(chain)
    parts = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
        '<meta name="viewport" content="width=device-width">',
        f"<title>{escape(headline(line))}</title><style>{STYLE}</style></head><body>",
        _header(line, chain.id),
        _form(line),
        '<div class="picture" tabindex="0">',
        timeline_svg(line, chain.id, brief=len(line.rows) > MANY_ROWS),
        "</div>",
        f"<div><table><thead><tr>{HEADINGS}</thead><tbody>",
        *_table_rows(line),
        f"</tbody></table></div><script>{SCRIPT}</script></body></html>",
    )
    return "\n".join(parts)


def _header(line: Timeline, name: str) -> str:
    results = quantity(len(line.rows), "result", "results")
    retries = quantity(sum(row.retries for row in line.rows), "retry", "retries")
    counts = f"{results}, {retries}, chain {name}"
    if line.root is None:
        return f"<header><h1>Still running</h1><p>{counts}</p></header>"
    root = line.root
    mark = f'<span class="{root.status}">{MARKS[root.status]}</span>'
    ended = f"{root.status} after {duration_text(root.bar.width)}"
    why = _reason_html(root, LONGEST_REASON)
    rollbacks = failed_rollbacks_text(line)
    return (
        f"<header><h1>{mark} {escape(truncate(root.name, LONGEST_NAME))}</h1>"
        f"<p>{ended}, {counts}</p>"
        f'{why and f"""<p class="{root.status}">{why}</p>"""}'
        f'{rollbacks and f"""<p class="failed">{rollbacks}</p>"""}</header>'
    )


def _form(line: Timeline) -> str:
    numbers = dict.fromkeys(Status, 0)
    for row in line.rows:
        numbers[row.status] += 1
    boxes = "".join(
        f'<label class="{status}"><input type="checkbox" name="status" '
        f'value="{LETTERS[status]}" checked>{status} {number}</label>'
        for status, number in numbers.items()
    )
    return (
        '<form><input type="search" name="text" autocomplete="off" '
        'placeholder="Filter by task or reason" aria-label="Filter by task or reason">'
        f'{boxes}<output name="shown"></output></form>'
    )


def _table_rows(line: Timeline) -> Iterator[str]:
    reasons = MOST_REASON_LETTERS // max(len(line.rows), 1)
    longest = min(reasons, LONGEST_REASON)
    for row in line.rows:
        yield (
            f"<tr class={LETTERS[row.status]}>"
            f"<td>{escape(truncate(row.name, LONGEST_NAME))}"
            f"<td>{row.status}<td>{_reason_html(row, longest)}"
            f"<td>{row.retries}<td>{duration_text(row.bar.width)}<td>{_attempts_text(row)}"
        )


def _reason_html(row: ResultRow, longest: int) -> str:
    """Return why a task ended as it did; a long reason does not hide the rollback."""
    why = " · ".join(filter(None, (row.reason, origin_text(row), conflict_text(row))))
    rollback = escape(truncate(rollback_text(row), LONGEST_NAME))
    if row.rollback_error is not None:
        rollback = f'<span class="failed">{rollback}</span>'
    return " · ".join(filter(None, (escape(truncate(why, longest)), rollback)))


def _attempts_text(row: ResultRow) -> str:
    """Return how the attempts ended, without messages."""
    ends = [tick.error or row.status.value for tick in row.ticks]
    if len(ends) > MOST_ENDS:
        between = quantity(len(ends) - MOST_ENDS, "more", "more")
        ends[MOST_ENDS - 1 : -1] = [between]
    return escape(", ".join(ends))
