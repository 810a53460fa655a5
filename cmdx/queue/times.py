"""
When a schedule is due: by an interval, or by an expression of cron in a time zone.

Expressions are read by cronsim, which knows what a time zone does in spring and autumn.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from cmdx.declare.checks import check_seconds
from cmdx.exceptions import CmdxError, DefinitionError
from cmdx.extras import how_to_install

LONGEST_INTERVAL = 2_592_000
"""30 days, in seconds."""

CRON_FIELDS = 5

NAMES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
"""What cron calls some of its expressions."""


def check_interval(every: object) -> float:
    """Return the seconds between two runs; refuse what is none."""
    try:
        number = check_seconds("schedule", "every", every, above_zero=True)
    except DefinitionError as error:  # its text has what was given, and the cure
        raise DefinitionError("every must be a positive number") from error
    if number > LONGEST_INTERVAL:
        message = f"every cannot exceed {LONGEST_INTERVAL} seconds (30 days)"
        raise DefinitionError(message)
    return float(number)


def check_cron(cron: object, zone: object) -> str:
    """Return an expression of cron; refuse one that is never due, or no zone."""
    if not isinstance(cron, str):
        message = (
            f"schedule: cron must be a text such as '0 9 * * MON-FRI', got {cron!r}."
        )
        raise DefinitionError(message)
    text = NAMES.get(cron.strip().lower(), cron.strip())
    if text.startswith("@"):
        message = f"schedule: cron knows {', '.join(NAMES)}, not {cron!r}."
        raise DefinitionError(message)
    zone_of(zone)
    try:
        if len(text.split()) != CRON_FIELDS:
            message = "it does not have five fields"
            raise ValueError(message)  # noqa: TRY301 -- as cronsim does
        next_time(text, str(zone), 0.0)
    except ValueError as error:
        message = (
            f"schedule: {cron!r} is not an expression of cron: {error}. "
            "Write minute, hour, day, month and weekday, such as '0 9 * * MON-FRI'."
        )
        raise DefinitionError(message) from None
    return text


def zone_of(name: object) -> Any:
    """Return a time zone; refuse what is none."""
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(name)  # type: ignore[arg-type]
    except Exception:  # of a name that is none, or of a system without zones
        message = (
            f"schedule: there is no time zone {name!r}. Use a name such as "
            "'Europe/Berlin'; a system without zones needs the package tzdata."
        )
        raise DefinitionError(message) from None


def next_time(cron: str, zone: str, after: float) -> float:
    """Return when an expression is due next; raise ``ValueError`` if it never is."""
    cronsim = require_cronsim()
    begin = datetime.fromtimestamp(after, zone_of(zone))
    try:
        moment: datetime = next(cronsim.CronSim(cron, begin))
    except cronsim.CronSimError as error:
        raise ValueError(str(error)) from None
    except StopIteration:
        message = "it is never due"
        raise ValueError(message) from None
    return moment.timestamp()


def require_cronsim() -> Any:
    """Return the package that reads expressions of cron."""
    try:
        import cronsim
    except ImportError:
        message = f"schedules by cron need cronsim. {how_to_install('queue')}."
        raise CmdxError(message) from None
    return cronsim


def require_one_time(every: object, cron: object, zone: object) -> None:
    """Refuse a schedule that is by an interval and by cron, or by neither."""
    message = "schedule takes every= or cron=, got "
    if every is None and cron is None:
        raise DefinitionError(f"{message}neither. Give one of them.")
    if every is not None and cron is not None:
        raise DefinitionError(f"{message}both. Leave one of them out.")
    if cron is None and zone not in (None, "UTC"):
        message = "schedule: zone= belongs to cron=, leave it out with every=."
        raise DefinitionError(message)
