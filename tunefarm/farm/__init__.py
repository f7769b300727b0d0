"""The farm: the sweep loop, isolation of whatever may hang or crash, and the executors that place work."""
