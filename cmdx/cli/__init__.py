"""``python -m cmdx``: the commands; ``main`` is the first to read."""
