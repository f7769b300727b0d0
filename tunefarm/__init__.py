"""tunefarm: find the fastest right cuDNN plan for every problem, on a farm of GPUs."""

__version__ = "0.1.0"
