"""What happens when a task runs; ``lifecycle`` tells the story."""
