"""What is counted and measured of all runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opentelemetry import metrics

from cmdx import __version__

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider

    from cmdx import Task
    from cmdx.opentelemetry.spans import Ending
    from cmdx.run.record import Run

# The boundaries that OpenTelemetry has by default are meant for milliseconds.
SECONDS = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
    *(30.0, 60.0, 300.0),
)


class Metrics:
    """A histogram of durations, and counters of runs and retries."""

    def __init__(self, provider: MeterProvider | None) -> None:
        meter = metrics.get_meter("cmdx", __version__, provider)
        self.durations = meter.create_histogram(
            "cmdx.task.duration",
            unit="s",
            description="How long runs took, with the pauses between their attempts.",
            explicit_bucket_boundaries_advisory=SECONDS,
        )
        self.runs = meter.create_counter(
            "cmdx.task.runs", unit="{run}", description="Runs that have ended."
        )
        self.retries = meter.create_counter(
            "cmdx.task.retries", unit="{retry}", description="Retries that have begun."
        )

    def count_run(self, run: Run, ending: Ending) -> None:
        """Count a run that has ended, and note how long it took."""
        facts = {
            "cmdx.task": run.task.__qualname__,
            "cmdx.status": str(ending.status),
        }
        self.durations.record(run.duration, facts)
        if ending.stopped is not None:
            facts["cmdx.stopped"] = str(ending.stopped)
        self.runs.add(1, facts)

    def count_retry(self, task: type[Task[Any]]) -> None:
        """Count a retry that begins."""
        self.retries.add(1, {"cmdx.task": task.__qualname__})
