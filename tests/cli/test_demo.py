from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from pathlib import Path
from time import perf_counter

import pytest

from cmdx.cli.main import main

TIME = re.compile(r" +[\d.]+ [mµ]s")


def test_without_a_command_it_prints_its_help(capsys):
    assert main([]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("usage: python -m cmdx")
    assert "demo" in printed


def test_an_unknown_command_is_refused_and_the_known_ones_are_named(capsys):
    with pytest.raises(SystemExit) as exit_:
        main(["dmeo"])
    assert exit_.value.code == 2
    assert "demo" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["worker"], "plain tasks at a time (default: 1)"),
        (["worker"], "async tasks at a time (default: 100)"),
        (["worker"], "jobs claimed together (default: 50)"),
        (["worker"], "seconds to end when stopped (default: 25)"),
        (["worker"], "processes (default: 1)"),
        (["jobs", "app:queue", "list"], "how many (default: 20)"),
        (["demo"], "what to show (default: tasks)"),
    ],
)
def test_the_help_names_defaults(words, shown, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit):
        main([*words, "--help"])
    assert shown in capsys.readouterr().out


def test_it_tells_its_version(capsys):
    with pytest.raises(SystemExit) as exit_:
        main(["--version"])
    assert exit_.value.code == 0
    assert capsys.readouterr().out.startswith("pycmdx ")


def test_the_demo_retries_a_flaky_task_and_shows_its_attempts(instant, capsys):
    assert main(["demo"]) == 0
    lines = capsys.readouterr().out.splitlines()
    flaky = next(line for line in lines if line.startswith("✓ QuoteShipping"))
    assert flaky.endswith("2 retries, value='4.90 EUR'")
    told = [line.split("10.0 ms  ")[1] for line in lines if "  for 10.0 ms" in line]
    assert told == [
        "ConnectionError: the carrier does not answer, then 50.0 ms pause",
        "ConnectionError: the carrier does not answer, then 100 ms pause",
        "returned",
    ]
    assert instant.pauses.count(0.05) == instant.pauses.count(0.1) == 2


@pytest.mark.usefixtures("instant")
def test_the_demo_shows_a_skipped_and_a_failed_task(capsys):
    main(["demo"])
    lines = capsys.readouterr().out.splitlines()
    assert any(
        line.startswith("○ ApplyVoucher") and line.endswith("no voucher given")
        for line in lines
    )
    assert any(
        line.startswith("✗ ChargeCard") and line.endswith("card declined")
        for line in lines
    )
    assert "   metadata: {'code': 'insufficient_funds'}" in lines


@pytest.mark.usefixtures("instant")
def test_the_demo_ends_with_a_workflow_as_a_tree(capsys):
    main(["demo"])
    lines = capsys.readouterr().out.splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith("✗ Checkout"))
    tree = [line.split("  ")[0] for line in lines[start:]]
    tree[2:4] = sorted(tree[2:4])  # either of the parallel steps may start first
    assert tree == [
        "✗ Checkout",
        "├─ ✓ ReserveStock",
        "├─ ✓ CheckAddress",
        "├─ ✓ QuoteShipping",
        "├─ ○ ApplyVoucher",
        "└─ ✗ ChargeCard",
    ]
    assert all(re.search(" [mµ]s\\b", line) for line in lines[start:])
    assert lines[start + 1].endswith("value=2, rolled back")


@pytest.mark.usefixtures("instant")
def test_the_readme_shows_the_end_of_the_demo(capsys):
    readme = Path(__file__).parents[2] / "README.md"
    shown = readme.read_text("utf-8").partition("$ python -m cmdx demo\n…\n")[2]
    shown = shown.partition("```")[0].splitlines()
    main(["demo"])
    real = capsys.readouterr().out.splitlines()[-len(shown) :]
    for lines in (real, shown):
        lines[2:4] = sorted(lines[2:4])  # the parallel steps
    assert [TIME.sub("", line) for line in real] == [
        TIME.sub("", line) for line in shown
    ]


def test_the_workflow_of_the_demo_has_parallel_steps(capsys):
    main(["inspect", "cmdx.cli.demo:Checkout"])
    steps = capsys.readouterr().out.partition("\nSteps\n")[2].splitlines()
    assert [line.split("  stop")[0].rstrip() for line in steps[1:5]] == [
        "  ReserveStock",
        "  parallel",
        "    QuoteShipping",
        "    CheckAddress",
    ]


@pytest.mark.parametrize(
    ("words", "path"),
    [
        (["--html", "page.html"], "page.html"),
        (["--html"], "cmdx-demo.html"),
        (["tasks", "--open"], "cmdx-demo.html"),
    ],
)
@pytest.mark.usefixtures("instant")
def test_the_demo_writes_the_timeline_of_its_workflow(
    words, path, tmp_path, monkeypatch, capsys
):
    opened = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    monkeypatch.chdir(tmp_path)
    assert main(["demo", *words]) == 0
    assert "CheckAddress" in (tmp_path / path).read_text("utf-8")
    assert capsys.readouterr().err == f"The timeline is in {path}.\n"
    assert opened == ([(tmp_path / path).as_uri()] if "--open" in words else [])


@pytest.mark.usefixtures("instant")
def test_the_page_of_the_demo_is_opened_on_a_terminal(tmp_path, monkeypatch):
    opened = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.chdir(tmp_path)

    assert main(["demo", "--html"]) == 0
    assert opened == [(tmp_path / "cmdx-demo.html").as_uri()]


@pytest.mark.usefixtures("instant")
def test_without_an_option_the_demo_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    main(["demo"])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["queue", "--html"], "The demo of queue has no page to write."),
        (["delivery", "--open"], "The demo of delivery has no page to write."),
        (["--html", "/"], "/ cannot be written: Is a directory. Name another file."),
    ],
)
def test_a_page_that_cannot_be_written_is_refused_at_once(words, sentence, capsys):
    assert main(["demo", *words]) == 2
    assert capsys.readouterr() == ("", f"{sentence}\n")


@pytest.mark.usefixtures("instant")
@pytest.mark.parametrize("no_color", ["", "1"])
def test_the_demo_is_coloured_on_a_terminal(no_color, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    stream = Terminal()
    monkeypatch.setattr("sys.stdout", stream)
    monkeypatch.setenv("NO_COLOR", no_color)
    main(["demo"])
    branch, mark = "\x1b[2m└─ \x1b[0m", "\x1b[31m✗\x1b[0m"
    declined = "\x1b[31m  card declined\x1b[0m"
    last = stream.getvalue().splitlines()[-1]
    assert last.startswith(f"{branch}{mark} ChargeCard") == (not no_color)
    assert last.endswith(declined) == (not no_color)
    assert ("\x1b" in stream.getvalue()) == (not no_color)


def test_the_demo_sleeps_less_than_a_second_in_all(instant):
    main(["demo"])
    assert 0 < sum(instant.pauses) < 1


def test_the_demo_of_deliveries_bridges_an_outage(capsys):
    assert main(["demo", "delivery"]) == 0
    lines = capsys.readouterr().out.splitlines()
    refused = [line.split()[0] for line in lines if "is sent again later" in line]
    assert [round(float(second)) for second in refused] == [0, 2, 6, 14, 30]
    states = [line.split("is ")[1] for line in lines if "-- the courier is" in line]
    assert states == ["failed --", "in transition --", "recovered --", "up --"]
    assert lines[-1] == ("8 events, 13 requests, 0 lost; each conversation in order.")


def test_the_demo_of_deliveries_says_what_it_needs(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "httpcore", None)
    assert main(["demo", "delivery"]) == 2
    assert "the extra 'delivery' of pycmdx" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "function"),
    [
        (["demo"], "demo.spend"),
        (["demo", "queue"], "demo_queue.say"),
        (["demo", "delivery"], "demo_delivery.send_events"),
    ],
)
def test_an_interrupt_is_no_traceback(words, function, capsys, monkeypatch):
    def press_ctrl_c(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(f"cmdx.cli.{function}", press_ctrl_c)
    assert main(words) == 130
    assert capsys.readouterr().err == "Interrupted.\n"


def test_python_dash_m_cmdx_demo_runs_as_a_program():
    started = perf_counter()
    finished = subprocess.run(
        [sys.executable, "-m", "cmdx", "demo"],
        capture_output=True,
        check=False,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )
    assert finished.returncode == 0, finished.stderr.decode()
    assert finished.stderr == b""
    lines = finished.stdout.decode("ascii").splitlines()
    assert any(line.startswith("+ QuoteShipping") for line in lines)
    assert any(line.startswith("o ApplyVoucher") for line in lines)
    assert any(line.startswith("x ChargeCard") for line in lines)
    assert any(line.startswith("`- x ChargeCard") for line in lines)
    assert perf_counter() - started > 0.3, "the demo pauses for real"


@pytest.mark.parametrize(
    ("arguments", "redirection", "code"),
    [
        ("demo", ">&-", 0),
        ("inspect cmdx.cli.demo:ChargeCard", ">&-", 0),
        ("inspect nowhere:ChargeCard", "2>&-", 2),
        ("demo", "0<&- >&- 2>&-", 0),
    ],
)
def test_closed_streams_are_not_written_to(arguments, redirection, code):
    command = f"{sys.executable} -m cmdx {arguments} {redirection}"
    finished = subprocess.run(  # noqa: S603 -- ourselves
        ["/bin/sh", "-c", command], capture_output=True, check=False
    )

    assert (finished.returncode, finished.stderr) == (code, b"")


def test_a_reader_that_has_seen_enough_ends_the_demo_quietly():
    program = subprocess.Popen(
        [sys.executable, "-m", "cmdx", "demo"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert program.stdout is not None
    program.stdout.close()
    _, said = program.communicate(timeout=30)

    assert said == b""
    assert program.returncode == 1


@pytest.mark.parametrize(
    ("numbers", "start", "end"),
    [
        (["3"], "Invoice 3 was begun twice", "it was done."),
        (["3", "4"], "Invoices 3 and 4 were begun twice", "they were done."),
        (["3", "4", "5"], "Invoices 3, 4 and 5 were begun twice", "they were done."),
    ],
)
def test_invoices_that_were_begun_twice_are_told_in_the_right_number(
    numbers, start, end
):
    from cmdx.cli.demo_queue import repeats_text

    assert repeats_text(numbers).startswith(start)
    assert repeats_text(numbers).endswith(end)
