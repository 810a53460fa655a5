"""Tasks made of tasks; ``workflow`` is the first to read."""
