"""What a class says; ``blueprint`` tells how it is folded and compiled."""
