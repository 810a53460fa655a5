"""Workflows and chains as flowcharts."""

from __future__ import annotations

import re
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pictured_shop import NASTY, NASTY_SHOWN, chain_with_failed_rollback, nasty_chain

from cmdx import Chain, Task, Workflow, group, parallel, step
from cmdx.pictures import chain_mermaid, workflow_mermaid


class Chart(NamedTuple):
    nodes: dict[str, str]
    """The label of each node."""
    shapes: dict[str, str]
    """What stands around the label."""
    styles: dict[str, str]
    edges: list[tuple[str, str, str, str]]
    """From, arrow, label, to; by label where the nodes have one."""
    frames: dict[str, list[str]]
    """The labels of what is directly in each frame, by its label."""


NODE = re.compile(r'(n\d+)([\[({]+)"([^"]*)"([\])}]+)(?::::(\w+))?')
EDGE = re.compile(r'(\w+) (-->|==>|-\. "thrown from" \.->)(?:\|"([^"]*)"\|)? (\w+)')
FRAME = re.compile(r'subgraph (g\d+)\["([^"]*)"\]')
OTHER = re.compile(r"(direction TB|classDef \w+ [\w:#, -]+|style g\d+ [\w:, -]+)")


def shown(label):
    """What mermaid makes of a label."""
    assert not re.search(r"[<>&`*%{}]", label.replace("<br/>", ""))
    text = label.replace("<br/>", "\n")
    return re.sub(r"#(\d+);", lambda found: chr(int(found[1])), text)


def read(text):
    """Read a flowchart; refuse every line that is not understood."""
    head, *lines = text.splitlines()
    assert head == "flowchart TD"
    chart = Chart({}, {}, {}, [], {})
    open_frames, edges = [], []
    for line in map(str.strip, lines):
        if found := NODE.fullmatch(line):
            name, opening, label, closing, style = found.groups()
            chart.nodes[name] = shown(label)
            chart.shapes[name] = opening + closing
            chart.styles[name] = style or ""
            if open_frames:
                chart.frames[open_frames[-1]].append(shown(label))
        elif found := FRAME.fullmatch(line):
            name, label = found.groups()
            if open_frames:
                chart.frames[open_frames[-1]].append(shown(label))
            chart.nodes[name] = shown(label)
            chart.frames[shown(label)] = []
            open_frames.append(shown(label))
        elif found := EDGE.fullmatch(line):
            edges.append(found.groups())
        elif line == "end":
            open_frames.pop()
        else:
            assert OTHER.fullmatch(line), line
    assert open_frames == []
    for start, arrow, label, end in edges:
        names = chart.nodes[start], chart.nodes[end]
        chart.edges.append((names[0], arrow, shown(label or ""), names[1]))
    return chart


def links(chart):
    return [(start, end) for start, _, _, end in chart.edges]


class Find(Task[str]):
    def work(self) -> str:
        return "found"


class Store(Task[None]):
    def work(self) -> None: ...


class Notify(Task[None]):
    def work(self) -> None: ...


class Nested(Workflow[None]):
    steps = (Find, Store)


def is_live(task):
    return bool(task)


# -- workflows ------------------------------------------------------------------


def test_steps_are_linked_in_order():
    class Onboard(Workflow[None]):
        steps = (Find, Store, Notify)

    chart = read(workflow_mermaid(Onboard))

    assert links(chart) == [
        ("Onboard", "Find"),
        ("Find", "Store"),
        ("Store", "Notify"),
        ("Notify", " "),
    ]


def test_a_workflow_draws_itself():
    class Onboard(Workflow[None]):
        steps = (Find, Store)

    assert Onboard.to_mermaid() == workflow_mermaid(Onboard)


def test_a_workflow_without_steps_is_drawn_too():
    class Empty(Workflow[None]):
        pass

    assert links(read(workflow_mermaid(Empty))) == [("Empty", " ")]


def test_a_group_is_a_frame_with_its_steps_in_order():
    class Onboard(Workflow[None]):
        steps = (Find, group(Store, Notify), Find)

    chart = read(workflow_mermaid(Onboard))

    assert chart.frames == {"group": ["Store", "Notify"]}
    assert links(chart) == [
        ("Store", "Notify"),
        ("Onboard", "Find"),
        ("Find", "group"),
        ("group", "Find"),
        ("Find", " "),
    ]


@pytest.mark.parametrize(
    ("options", "label"),
    [
        ({"if_": "wanted"}, "group, if wanted"),
        ({"unless": "wanted"}, "group, unless wanted"),
        ({"if_": is_live, "unless": "wanted"}, "group, if is_live, unless wanted"),
        ({"if_": lambda _: True}, "group, if a lambda"),
        ({"if_": True, "unless": False}, "group"),
        ({"if_": False}, "group, if False"),
        ({"continue_on_failure": True}, "group, continue on failure"),
    ],
)
def test_the_label_of_a_group_tells_its_gates(options, label):
    class Gated(Workflow[None]):
        steps = (group(Find, **options),)

        def wanted(self) -> bool:
            return True

    assert [*read(workflow_mermaid(Gated)).frames] == [label]


def test_parallel_steps_are_between_a_fork_and_a_join():
    class Dashboard(Workflow[None]):
        steps = (parallel(Find, Store),)

    text = workflow_mermaid(Dashboard)
    chart = read(text)

    assert chart.frames == {"parallel": [" ", "Find", "Store", " "]}
    assert links(chart) == [
        (" ", "Find"),
        ("Find", " "),
        (" ", "Store"),
        ("Store", " "),
        ("Dashboard", "parallel"),
        ("parallel", " "),
    ]
    fork, join, end = (name for name, label in chart.nodes.items() if label == " ")
    for line in (f"{fork} --> n3", f"{fork} --> n4", f"n3 --> {join}", f"g1 --> {end}"):
        assert f"{line}\n" in text


def mine(jobs, workers):
    raise NotImplementedError


@pytest.mark.parametrize(
    ("options", "label"),
    [
        ({"if_": "wanted"}, "parallel, if wanted"),
        ({"workers": 1}, "parallel, 1 worker"),
        ({"workers": 2, "merge": "deep"}, "parallel, 2 workers, merge deep"),
        ({"executor": "inline"}, "parallel, executor inline"),
        ({"executor": mine, "merge": mine}, "parallel, executor mine, merge mine"),
    ],
)
def test_the_label_of_a_parallel_group_tells_how_it_is_run(options, label):
    class Dashboard(Workflow[None]):
        steps = (parallel(Find, Store, **options),)

        def wanted(self) -> bool:
            return True

    assert [*read(workflow_mermaid(Dashboard)).frames] == [label]


def test_a_nested_workflow_is_a_frame_with_its_steps():
    class Outer(Workflow[None]):
        steps = (Notify, Nested)

    chart = read(workflow_mermaid(Outer))

    assert chart.frames == {"Nested": ["Find", "Store"]}
    assert links(chart) == [
        ("Find", "Store"),
        ("Outer", "Notify"),
        ("Notify", "Nested"),
        ("Nested", " "),
    ]


def test_frames_contain_frames():
    class Outer(Workflow[None]):
        steps = (parallel(Notify, Nested),)

    assert read(workflow_mermaid(Outer)).frames == {
        "parallel": [" ", "Notify", "Nested", " "],
        "Nested": ["Find", "Store"],
    }


def test_renamed_values_of_a_step_are_at_its_edges():
    class Order(Workflow[None]):
        steps = (
            Notify,
            step(Find, map={"id": "product_id", "shop": "seller"}, into="product"),
            Store,
        )

    assert read(workflow_mermaid(Order)).edges[1:3] == [
        ("Notify", "-->", "product_id → id\nseller → shop", "Find"),
        ("Find", "-->", "→ product", "Store"),
    ]


def test_renamed_values_of_two_steps_share_the_edge_between_them():
    class Order(Workflow[None]):
        steps = (step(Find, into="product"), step(Store, map={"item": "product"}))

    edges = read(workflow_mermaid(Order)).edges

    assert edges[1] == ("Find", "-->", "→ product\nproduct → item", "Store")


def test_renamed_values_are_at_the_edges_of_parallel_steps_and_nested_workflows():
    class Order(Workflow[None]):
        steps = (
            parallel(step(Find, map={"id": "a"}, into="b"), Notify),
            step(Nested, map={"id": "c"}, into="d"),
        )

    edges = read(workflow_mermaid(Order)).edges

    assert (" ", "-->", "a → id", "Find") in edges
    assert ("Find", "-->", "→ b", " ") in edges
    assert ("parallel", "-->", "c → id", "Nested") in edges
    assert ("Nested", "-->", "→ d", " ") in edges


def test_a_step_whose_failure_is_tolerated_is_dashed_and_says_so():
    class Order(Workflow[None]):
        steps = (
            step(Notify, on_failure="continue"),
            step(Nested, on_failure="continue"),
        )

    text = workflow_mermaid(Order)
    chart = read(text)
    styles = {chart.nodes[name]: style for name, style in chart.styles.items()}

    assert styles["Notify, may fail"] == "tolerated"
    assert "classDef tolerated stroke-dasharray" in text
    frame = next(name for name, label in chart.nodes.items() if "Nested" in label)
    assert chart.nodes[frame] == "Nested, may fail"
    assert f"style {frame} stroke-dasharray" in text


def test_a_name_is_shown_as_it_is_whatever_it_is():
    nasty = type("Task", (Task,), {"work": lambda _: None, "__qualname__": NASTY})

    class Order(Workflow[None]):
        steps = (
            step(nasty, map={NASTY: NASTY}, into=NASTY),
            type("Inner", (Workflow,), {"steps": (nasty,), "__qualname__": NASTY}),
        )

    chart = read(workflow_mermaid(Order))

    assert [*chart.nodes.values()].count(NASTY_SHOWN) == 3
    assert chart.edges[0][2] == f"{NASTY_SHOWN} → {NASTY_SHOWN}"
    assert chart.edges[1][2] == f"→ {NASTY_SHOWN}"


# -- chains ---------------------------------------------------------------------


def test_a_chain_has_a_node_for_each_result_and_edges_from_parents_in_order(chain):
    chart = read(chain_mermaid(chain))

    assert [label.split("\n")[0] for label in chart.nodes.values()] == [
        "✗ Checkout",
        "✓ ValidateCart",
        "✓ ReserveStock",
        "✓ QuoteShipping",
        "○ ApplyVoucher",
        "✗ Pay",
        "✗ ChargeCard",
    ]
    assert [(start.split()[1], end.split()[1]) for start, end in links(chart)] == [
        ("Checkout", "ValidateCart"),
        ("Checkout", "ReserveStock"),
        ("Checkout", "QuoteShipping"),
        ("Checkout", "ApplyVoucher"),
        ("Checkout", "Pay"),
        ("Pay", "ChargeCard"),
    ]


def test_nodes_are_coloured_by_status(chain):
    text = chain_mermaid(chain)

    assert [*read(text).styles.values()] == [
        *("failed", "success", "success", "success", "skipped", "rollback_failed"),
        "failed",
    ]
    for status in ("success", "skipped", "failed"):
        assert re.search(rf"classDef {status} fill:#\w+,stroke:#\w+,color:#\w+", text)


def test_nodes_tell_why(chain):
    labels = [*read(chain_mermaid(chain)).nodes.values()]

    assert labels[4] == "○ ApplyVoucher\nno voucher given"
    assert labels[5] == "✗ Pay\n✗ rollback failed: OSError"
    assert labels[6] == "✗ ChargeCard\n2 retries\ncard declined"


def test_a_rollback_that_failed_is_shown_as_an_error():
    text = chain_mermaid(chain_with_failed_rollback())
    chart = read(text)
    styles = dict(zip(chart.nodes.values(), chart.styles.values(), strict=True))

    assert styles["✓ Reserve\n✗ rollback failed: OSError"] == "rollback_failed"
    assert styles["✓ Book\nrolled back"] == "success"
    assert re.search(r"classDef rollback_failed fill:#fde3e1,stroke:#d93a3a,", text)


def test_the_edge_to_where_a_failure_was_thrown_from_is_bold(chain):
    bold = [edge for edge in read(chain_mermaid(chain)).edges if edge[1] == "==>"]

    assert [(start.split()[1], end.split()[1]) for start, _, _, end in bold] == [
        ("Checkout", "Pay"),
        ("Pay", "ChargeCard"),
    ]


def test_a_failure_thrown_from_no_child_has_an_edge_of_its_own():
    class First(Task[None]):
        def work(self) -> None:
            self.fail("no")

    class Second(Task[None]):
        def work(self) -> None:
            self.throw(self.context.first)

    class Root(Task[None]):
        def work(self) -> None:
            Second.execute(first=First.execute())

    edges = read(chain_mermaid(Root.execute().chain)).edges

    assert edges[-1] == ("✗ Second", '-. "thrown from" .->', "", "✗ First\nno")


def test_a_workflow_that_was_run_has_a_shape_of_its_own():
    chart = read(chain_mermaid(Nested.execute().chain))

    assert [*chart.shapes.values()] == ["[[]]", "[]", "[]"]


def test_a_reason_is_shown_as_it_is_whatever_it_is():
    assert [*read(chain_mermaid(nasty_chain())).nodes.values()] == [
        f"✗ {NASTY_SHOWN}\n{NASTY_SHOWN}"
    ]


@given(st.text(max_size=40))
def test_any_reason_leaves_the_chart_readable(reason):
    class Failing(Task[None]):
        def work(self) -> None:
            self.fail(reason)

    assert len(read(chain_mermaid(Failing.execute().chain)).nodes) == 1


def test_an_endless_reason_is_cut():
    class Failing(Task[None]):
        def work(self) -> None:
            self.fail("a" * 5000)

    (label,) = read(chain_mermaid(Failing.execute().chain)).nodes.values()

    assert label.endswith("aaa…")
    assert len(label) < 200


def test_an_empty_chain_is_an_empty_chart():
    assert read(chain_mermaid(Chain())).nodes == {}


@pytest.mark.parametrize(
    "text",
    [
        "1. first",
        "- item",
        "_em",
        "em_",
        "-a",
        "*em*",
        "www.example.com",
        "style:x#a;",
        "%%",
    ],
)
def test_what_means_something_to_mermaid_is_written_as_codes(text):
    class Failing(Task[None]):
        def work(self) -> None:
            self.fail(text)

    chart = chain_mermaid(Failing.execute().chain)

    assert text not in chart
    assert read(chart).nodes["n0"] == f"✗ Failing\n{text}"


@pytest.mark.parametrize("text", ["snake_case", "some-thing", "[ValueError] a, b", "ü"])
def test_what_is_harmless_stays_readable(text):
    class Failing(Task[None]):
        def work(self) -> None:
            self.fail(text)

    assert f"<br/>{text}" in chain_mermaid(Failing.execute().chain)


def test_a_group_beside_others_is_drawn_as_one_frame():
    class Fetch(Task[None]):
        def work(self) -> None: ...

    class Report(Workflow[None]):
        steps = (parallel(group(Fetch, Fetch), Fetch),)

    frames = [line for line in Report.to_mermaid().splitlines() if "subgraph" in line]

    assert [frame.split("[")[1] for frame in frames] == ['"parallel"]', '"group"]']
