"""
Where we differ from Ruby on purpose: why, and what happens instead.

Only fields that differ are listed; all others must be as recorded.
What cannot be written in Python at all has no analogue, and is not replayed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from cmdx import retriers


class Difference(NamedTuple):
    reason: str
    expected: dict[str, Any]


class Saying:
    """Equals any text that has all these words in it; sentences may be reworded."""

    def __init__(self, *words):
        self.words = words

    def __eq__(self, text):
        return isinstance(text, str) and all(word in text for word in self.words)

    __hash__ = None

    def __repr__(self):
        return f"Saying{self.words!r}"


BEFORE = ("before_execution", "before_validation", "around_execution.before")
AFTER_FAILURE = ("after_execution", "on_interrupted", "on_failed", "on_ko")


def refused(*words, by="DefinitionError"):
    """Return what is seen when a declaration is refused, so that nothing is run."""
    return {
        "result": None,
        "raised": {
            "class": f"CMDx::{by}",
            "message": Saying(*words),
            "is_fault": False,
            "fault_task": None,
            "ruby_cause": None,
        },
        "work_calls": {},
        "telemetry": [],
        "callbacks": [],
        "middleware": [],
        "trace": [],
    }


def exhausted(task, retries, pauses=()):
    """Return what is seen of a *task* that always raises and is retried so often."""
    calls = retries + 1
    error = f"boom {calls}"
    retried = [f"{task}:task_retried(attempt={n})" for n in range(1, calls)]
    again = []
    for n in range(1, calls):
        if pauses:
            again.append(f"sleep {pauses[n - 1]}")
        again += [f"telemetry {task} {retried[n - 1]}", f"work {task} #{n + 1}"]
    return {
        "result.reason": f"[TransientError] {error}",
        "result.cause": f"TransientError: {error}",
        "result.retries": retries,
        "result.chain": [in_chain(task, "failed", retries)],
        "work_calls": {task: calls},
        "telemetry": [f"{task}:task_started", *retried, f"{task}:task_executed"],
        "trace": [
            f"middleware {task}.enter",
            f"telemetry {task} {task}:task_started",
            *called_back(task, BEFORE),
            f"work {task} #1",
            *again,
            *called_back(task, ("around_execution.after", *AFTER_FAILURE)),
            f"middleware {task}.leave",
            f"telemetry {task} {task}:task_executed",
        ],
    }


def halted_before_work():
    """Return what is seen when a ``before_execution`` callback ends the run."""
    return {
        "callbacks": [f"T.{event}" for event in ("before_execution", *AFTER_FAILURE)],
        "middleware": ["T.enter", "T.leave"],
        "trace": [
            "middleware T.enter",
            "telemetry T T:task_started",
            *called_back("T", ("before_execution", *AFTER_FAILURE)),
            "middleware T.leave",
            "telemetry T T:task_executed",
        ],
    }


def called_back(task, events):
    return [f"callback {task}.{event}" for event in events]


def in_chain(task, status, retries=0):
    return {
        "task": task,
        "status": status,
        "retries": retries,
        "rolled_back": False,
        "root": True,
    }


DIFFERENCES = {
    "basic_limit_negative": Difference(
        "Options are checked when declared, and a limit below 0 is refused.",
        refused("retry_on: limit", "0 or more", "-1"),
    ),
    "basic_delay_negative": Difference(
        "Options are checked when declared, and a delay below 0 is refused.",
        refused("retry_on: delay", "0 or more", "-1.0"),
    ),
    "merge_option_only_second_call_ignored": Difference(
        "Options alone apply wherever they are declared.",
        exhausted("T", retries=5),
    ),
    "inherit_parent_changed_after_child_memo": Difference(
        "A child always sees the declarations of its parents.",
        exhausted("C", retries=5),
    ),
    "max_delay_negative": Difference(
        "Options are checked when declared, and a max_delay below 0 is refused.",
        refused("retry_on: max_delay", "0 or more", "-1"),
    ),
    "custom_lambda_two_params": Difference(
        "A jitter is called with as many arguments as it takes.",
        exhausted("T", retries=2, pauses=[1.0, 2.0])
        | {"result.retried": True, "sleeps": [1.0, 2.0]},
    ),
    "custom_method_name_missing": Difference(
        "An unknown jitter is refused at the first use, with the known names.",
        refused("'nope'", *retriers, by="UnknownEntryError"),
    ),
    "registry_non_callable": Difference(
        "The class and the sentence are ours.",
        {
            "raised.class": "CMDx::DefinitionError",
            "raised.message": Saying("'five'", "callable", "int"),
        },
    ),
    "registry_string_names": Difference(
        "Text is a name, there are no symbols beside it.",
        {"value": [True, False, False]},
    ),
    "registry_resolve_bad": Difference(
        "Text is a name, so it is looked up.",
        {"raised": None, "value": True},
    ),
    "gate_invalid_type": Difference(
        "Text is the name of a method, and one that does not exist is refused.",
        refused("retry_on", "if_", "'yes'", "not a method"),
    ),
    "errors_and_success_signal": Difference(
        "Errors win over succeed().",
        {
            "result.state": "interrupted",
            "result.status": "failed",
            "result.reason": "base bad",
            "result.caused_failure": "result:T:failed",
            "result.chain": [in_chain("T", "failed", retries=1)],
            "callbacks": [
                f"T.{event}"
                for event in (*BEFORE, "around_execution.after", *AFTER_FAILURE)
            ],
            "trace": exhausted("T", retries=1)["trace"],
        },
    ),
    "before_callback_raises_declared": Difference(
        "What a callback raises becomes a failed result, and completion callbacks run.",
        {
            "result": {
                "state": "interrupted",
                "status": "failed",
                "reason": "[TransientError] cb",
                "metadata": {},
                "retries": 0,
                "retried": False,
                "strict": False,
                "rolled_back": False,
                "cause": "TransientError: cb",
                "origin": None,
                "caused_failure": "result:T:failed",
                "errors": {},
                "context": {},
                "chain": [in_chain("T", "failed")],
            },
            "raised": None,
            "telemetry": ["T:task_started", "T:task_executed"],
            **halted_before_work(),
        },
    ),
    "callback_fails_signal": Difference(
        "Completion callbacks run for every outcome, and middlewares see the result.",
        halted_before_work(),
    ),
    "telemetry_payload": Difference(
        "The signal also tells the pause, the error, the rule, and how retries nest.",
        {
            "notes.payloads": [
                {
                    "attempt": attempt,
                    "delay": 0.0,
                    "error": f"TransientError: boom {attempt}",
                    "rule": None,
                    "depth": 0,
                    "product": 4,
                }
                for attempt in (1, 2, 3)
            ]
        },
    ),
    "nested_fault_exhausted_execute_bang": Difference(
        "The Fault that work raised is raised again as it is, not wrapped in another.",
        {"raised.ruby_cause": None},
    ),
}

NO_ANALOGUE = {
    "custom_block_and_jitter": "A decorator takes no block beside its jitter.",
    "registry_callable_and_block": "A registration takes no block beside its callable.",
}
