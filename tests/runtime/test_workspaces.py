"""Workspaces keep their address, one for each stream."""

import torch

from tunefarm.runtime.workspaces import Workspaces

CPU = torch.device("cpu")


def test_each_stream_has_one_that_never_moves():
    workspaces = Workspaces(32, CPU, zeroed=False)
    first, second = workspaces(1), workspaces(2)
    assert workspaces(1) is first
    assert workspaces(2) is second
    assert first.data_ptr() != second.data_ptr()
    assert (first.numel(), first.dtype) == (32, torch.uint8)


def test_zeros_are_written_once_and_left_to_the_plan_then():
    workspaces = Workspaces(32, CPU, zeroed=True)
    assert workspaces(0).sum() == 0
    workspaces(0).fill_(1)
    assert workspaces(0).sum() == 32
