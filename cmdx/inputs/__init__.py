"""What goes into a task and comes out of it; ``fields`` is the first to read."""
