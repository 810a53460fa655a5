"""The libraries that some parts need, and how to install them."""

from __future__ import annotations

EXTRAS = {
    "postgres": ("psycopg[binary]>=3.2",),
    "queue": ("cronsim>=2.6",),
    "delivery": ("httpcore[asyncio]>=1.0.5", "sniffio>=1.3"),
    "celery": ("celery>=5.7",),
    "dramatiq": ("dramatiq[rabbitmq,redis]>=2.0",),
    "otel": ("opentelemetry-api>=1.30",),
    "cli": ("rich>=13",),
}
"""What each extra of the distribution installs, as in ``pyproject.toml``."""


def how_to_install(extra: str) -> str:
    """Return a sentence, without its end, that says how to install an extra."""
    # Not as pycmdx[...], which does not install a checkout.
    libraries = " ".join(f'"{library}"' for library in EXTRAS[extra])
    return f"Install what the extra {extra!r} of pycmdx has: pip install {libraries}"
