"""
``python -m cmdx worker module:queue`` and ``jobs module:queue``.

1. the queue is imported                                          ``import_queue``
2. a worker runs its jobs, in this process or in several          ``run_worker``
3. jobs are counted, listed, shown, replayed and cancelled        ``run_jobs``

Inputs are printed only with ``--inputs``: they may be secrets.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any, NoReturn

from cmdx.cli.job_texts import job_line, job_text
from cmdx.cli.targets import Kind, Misuse, NotFound, kind_of, load_target

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import ModuleType

    from cmdx.cli.reports import ReportingWorker
    from cmdx.queue import Job, Queue

DEFAULT = "(default: %(default)s)"
"""The end of the help of an option."""


def add_worker(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Add the command ``worker``."""
    parser = subparsers.add_parser(
        "worker",
        help="run the jobs of a queue",
        description="Run the jobs of a queue until SIGTERM or Ctrl-C.",
    )
    add_queue(parser)
    add = parser.add_argument
    add("--threads", type=int, default=1, help=f"plain tasks at a time {DEFAULT}")
    add("--coroutines", type=int, default=100, help=f"async tasks at a time {DEFAULT}")
    add("--batch", type=int, default=50, help=f"jobs claimed together {DEFAULT}")
    add(
        "--grace", type=float, default=25, help=f"seconds to end when stopped {DEFAULT}"
    )
    add("--processes", type=int, default=1, help=f"processes {DEFAULT}")
    parser.set_defaults(run=run_worker)


def add_jobs(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Add the command ``jobs``."""
    parser = subparsers.add_parser(
        "jobs",
        help="count, list, show, replay and cancel jobs",
        description="Look at the jobs of a queue, or change them.",
    )
    add_queue(parser)
    for option in ("--state", "--task", "--key", "--error", "--limit", "--inputs"):
        parser.add_argument(option, nargs="?", action=Misplaced, help=argparse.SUPPRESS)
    parser.set_defaults(
        run=run_jobs, cure=action_cure, action="counts", instead=OTHER_ACTIONS
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION", dest="action")
    actions.add_parser("counts", help="how many there are in each state")
    actions.add_parser("pause", help="have workers claim no more jobs")
    actions.add_parser("resume", help="have workers claim jobs again")
    listing = actions.add_parser("list", help="list jobs, the oldest first")
    add_filters(listing)
    listing.add_argument("--limit", type=int, default=20, help=f"how many {DEFAULT}")
    add_inputs(listing)
    showing = actions.add_parser("show", help="show one job")
    showing.add_argument("id", metavar="ID")
    add_inputs(showing)
    for name in ("replay", "cancel"):
        changing = actions.add_parser(name, help=f"{name} jobs by id or filter")
        changing.add_argument("id", metavar="ID", nargs="*")
        changing.add_argument(
            "--everything", action="store_true", help="without filter"
        )
        add_filters(changing)
    for action in actions.choices.values():
        action.set_defaults(parser=action)


def action_cure(asked: argparse.Namespace, word: str, _: Sequence[str]) -> str:
    """Say how to write an action that was written as an option."""
    name = word.lstrip("-")
    if name not in ACTIONS:
        return ""
    return (
        ". Actions are written without dashes: "
        f"python -m cmdx jobs {asked.queue} {name}"
    )


class Misplaced(argparse.Action):
    """An option that was written without its action, or before it."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> NoReturn:
        """Refuse it, and say how to write it."""
        queue = getattr(namespace, "queue", None) or "MODULE:QUEUE"
        value = "" if values is None else f" {values}"
        parser.error(
            f"{option_string} is an option of an action. Write the action first: "
            f"python -m cmdx jobs {queue} list {option_string}{value}"
        )


def add_queue(parser: argparse.ArgumentParser) -> None:
    """Add the argument that names the queue."""
    parser.add_argument(
        "queue", metavar="MODULE:QUEUE", help="where the queue is, such as app:queue"
    )


def add_filters(parser: argparse.ArgumentParser) -> None:
    """Add the filters of ``Queue.find``."""
    states = "ready, held, running, done, dead or cancelled"
    parser.add_argument("--state", help=states)
    parser.add_argument("--task", help="such as app:ChargeCard, or only ChargeCard")
    parser.add_argument("--key", help="the key they were enqueued with")
    parser.add_argument("--error", help="what ended them, such as KeyError")


def add_inputs(parser: argparse.ArgumentParser) -> None:
    """Add the option that prints inputs."""
    parser.add_argument("--inputs", action="store_true", help="print inputs as well")


def import_queue(target: str) -> Queue:
    """Return the queue that *target* names, or raise ``NotFound``."""
    from cmdx.queue import Queue

    module, value = load_target(target, QUEUE)
    if not isinstance(value, Queue):
        message = (
            f"{target} is not a queue but {kind_of(value)}. Name a cmdx.queue.Queue; "
            f"{module.__name__} is a module with {QUEUE.listing(module)}."
        )
        raise NotFound(message)
    value.tasks = (*value.tasks, module.__name__.partition(".")[0])
    return value


def queue_names(module: ModuleType) -> list[str]:
    """Return what the queues of a module are called."""
    from cmdx.queue import Queue

    return [name for name, value in vars(module).items() if isinstance(value, Queue)]


QUEUE = Kind("queue", "queue", queue_names)


# -- worker -------------------------------------------------------------------------


def run_worker(asked: argparse.Namespace) -> int:
    """Run a worker, or several in processes of their own."""
    return start_worker(import_queue(asked.queue), asked)


def start_worker(queue: Queue, asked: argparse.Namespace) -> int:
    """Check the options, then run one worker, or several."""
    from cmdx.cli import processes, reports
    from cmdx.declare.checks import check_count

    require_shared(queue)
    worker = reports.ReportingWorker(
        queue,
        asked.threads,
        coroutines=asked.coroutines,
        batch=asked.batch,
        grace=asked.grace,
    )
    if check_count("worker", "processes", asked.processes) > 1:
        return processes.run_processes(queue, asked)
    return work(worker, asked.queue)


def require_shared(queue: Queue) -> None:
    """Refuse a queue in memory, whose jobs no other process finds."""
    from cmdx.stores.store import MEMORY

    if queue.store.name == MEMORY:
        raise Misuse(
            f"{queue} is in memory, where no other process finds its jobs. Give it a "
            "file, as in Queue('app.db'), or stay in the process that enqueues them, "
            "with queue.worker() and queue.find()."
        )


def work(worker: ReportingWorker, target: str) -> int:
    """Run one worker until it is stopped."""
    from cmdx.cli import reports
    from cmdx.cli.processes import beats, is_one_of_several

    screen = worker.screen = reports.Screen(is_shared=is_one_of_several())
    screen.write(f"{worker} {reports.start_text(worker.queue)}")
    with (
        beats(worker),
        reports.show_progress(screen, lambda: reports.worker_text(worker)),
        reports.report_deaths(screen, worker.queue, target),
        reports.show_warnings(screen),
    ):
        worker.run()
    screen.write(f"{worker} {reports.end_text(worker.legs, worker.running)}")
    return 0


# -- jobs ---------------------------------------------------------------------------


def run_jobs(asked: argparse.Namespace) -> int:
    """Do what was asked with the jobs of a queue."""
    action, queue = ACTIONS[asked.action or "counts"], import_queue(asked.queue)
    require_shared(queue)
    return action(queue, asked)


def print_counts(queue: Queue, _: argparse.Namespace) -> int:
    """Print how many jobs there are in each state."""
    counts = queue.counts()
    width = len(str(max(counts.values())))
    for state, count in counts.items():
        sys.stdout.write(f"{count:>{width}} {state}\n")
    if queue.paused:
        sys.stdout.write("paused: workers claim no jobs\n")
    return 0


def print_list(queue: Queue, asked: argparse.Namespace) -> int:
    """Print a line per job, and whether there are more."""
    from cmdx.declare.checks import check_count

    limit = check_count("list", "limit", asked.limit)
    jobs = queue.find(limit=limit + 1, **filters_of(asked))
    for job in jobs[:limit]:
        sys.stdout.write(f"{job_line(job, with_inputs=asked.inputs)}\n")
    sys.stdout.flush()
    if len(jobs) > limit:
        sys.stderr.write(f"there are more jobs: --limit {limit * 2}\n")
    if not jobs:
        sys.stdout.write("no jobs\n")
        write_known_tasks(queue, asked.task)
    return 0


def write_known_tasks(queue: Queue, task: str | None) -> None:
    """Print of which tasks there are jobs, if there is none of the one asked for."""
    from cmdx.exceptions import did_you_mean
    from cmdx.queue.filters import full_name, tasks_of

    if task is None:
        return
    known = queue.store.transact(lambda statements: tasks_of(statements, queue.name))
    name = f"the queue {queue.name!r}"
    if not known:
        sys.stderr.write(f"{name} has no jobs.\n")
    elif full_name(queue.name, task, known) not in known:
        sys.stderr.write(
            f"{name} has no job of a task {task!r}{did_you_mean(task, known)} "
            f"It has jobs of {', '.join(known)}.\n"
        )


def write_unknown(queue: Queue, asked: argparse.Namespace, id_: str) -> None:
    """Print that there is no such job."""
    sys.stderr.write(
        f"there is no job {id_!r} in the queue {queue.name!r}. It was removed, or "
        f"never there: `python -m cmdx jobs {asked.queue} list` lists those that are.\n"
    )


def print_job(queue: Queue, asked: argparse.Namespace) -> int:
    """Print all that is known of a job."""
    job = queue.get(asked.id)
    if job is None:
        write_unknown(queue, asked, asked.id)
        return 1
    sys.stdout.write(job_text(job, with_inputs=asked.inputs))
    return 0


def change_jobs(
    queue: Queue,
    asked: argparse.Namespace,
    one: Callable[[str], object],
    many: Callable[..., int],
) -> int:
    """Change jobs by their ids or by filters, and print how many."""
    from cmdx.cli.reports import count_text

    filters = filters_of(asked)
    if asked.id and (filters or asked.everything):
        raise Misuse(f"{asked.action} takes ids, or filters, not both.")
    if asked.id:
        return change_each(queue, asked, one)
    if not filters and not asked.everything:
        raise Misuse(f"{asked.action} needs ids, a filter, or --everything.")
    require_fitting_state(asked)
    count = many(everything=asked.everything, **filters)
    sys.stdout.write(f"{count_text(count, 'job')}\n")
    if not count:
        write_known_tasks(queue, asked.task)
    return 0


def require_fitting_state(asked: argparse.Namespace) -> None:
    """Refuse a state whose jobs cannot be replayed, or cancelled."""
    from cmdx.queue.table import ENDED_STATES, JobState

    is_replay = asked.action == "replay"
    fitting = [state for state in JobState if (state in ENDED_STATES) == is_replay]
    if asked.state in fitting or asked.state not in tuple(JobState):
        return  # also one that is none; ``find`` knows the cure
    kind = "have ended" if is_replay else "have not ended"
    raise Misuse(
        f"{asked.action} changes only jobs that {kind}, not those that are "
        f"{asked.state}. Give --state {', '.join(fitting[:-1])} or {fitting[-1]}."
    )


def change_each(
    queue: Queue, asked: argparse.Namespace, change: Callable[[str], object]
) -> int:
    """Change jobs by their ids; tell which ones could not be changed."""
    from cmdx.cli.reports import count_text

    count = 0
    for id_ in asked.id:
        job = queue.get(id_)
        if job is None:
            write_unknown(queue, asked, id_)
        elif is_changeable(job, asked.action) and change(id_):
            count += 1
        else:
            sys.stderr.write(f"the job {id_!r} is {job.state}; nothing was changed.\n")
    sys.stdout.write(f"{count_text(count, 'job')}\n")
    return 0 if count == len(asked.id) else 1


def is_changeable(job: Job[Any], action: str) -> bool:
    """Tell whether a job can be replayed, or cancelled."""
    return (job.result is not None) == (action == "replay")


def replay_jobs(queue: Queue, asked: argparse.Namespace) -> int:
    """Let jobs run again."""
    return change_jobs(queue, asked, queue.replay, queue.replay_all)


def cancel_jobs(queue: Queue, asked: argparse.Namespace) -> int:
    """Cancel jobs."""
    return change_jobs(queue, asked, queue.cancel, queue.cancel_all)


def pause_queue(queue: Queue, _: argparse.Namespace) -> int:
    """Have workers claim no more jobs."""
    queue.pause()
    sys.stdout.write("paused: workers claim no jobs\n")
    return 0


def resume_queue(queue: Queue, _: argparse.Namespace) -> int:
    """Have workers claim jobs again."""
    queue.resume()
    sys.stdout.write("workers claim jobs again\n")
    return 0


def filters_of(asked: argparse.Namespace) -> Any:
    """Return the filters that were given."""
    names: Sequence[str] = ("state", "task", "key", "error")
    found = {name: getattr(asked, name, None) for name in names}
    return {name: value for name, value in found.items() if value is not None}


ACTIONS: dict[str, Callable[[Queue, argparse.Namespace], int]] = {
    "counts": print_counts,
    "list": print_list,
    "show": print_job,
    "replay": replay_jobs,
    "cancel": cancel_jobs,
    "pause": pause_queue,
    "resume": resume_queue,
}

REMOVE = "use 'cancel'; queue.prune() removes jobs that have ended"
OTHER_ACTIONS = {
    **dict.fromkeys(("retry", "requeue", "rerun", "run"), "use 'replay'"),
    **dict.fromkeys(("delete", "remove", "prune", "purge"), REMOVE),
    **dict.fromkeys(("kill", "stop", "abort"), "use 'cancel'"),
    **dict.fromkeys(("ls", "find"), "use 'list'"),
    **dict.fromkeys(("get", "inspect"), "use 'show'"),
    **dict.fromkeys(("count", "status"), "use 'counts'"),
}
"""What other command lines call the actions, and what to write here."""
