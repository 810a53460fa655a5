"""When to try again, and how long to wait; ``policy`` is the first to read."""
