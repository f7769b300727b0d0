"""Of `scripts/bench-serve`."""
