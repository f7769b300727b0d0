"""The ways that cuDNN's frontend has to enqueue a loaded plan, by what they cost the host.

A plan takes addresses, one for each uid, in ascending order of the uids. The frontend finds them in a mapping of
tensors, or in a sequence of them beside one of uids, and describes each tensor for its python engines while it does. It
ends in a function of bare addresses, which a caller that checked its tensors may call itself.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from operator import itemgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # building for a device that isn't here needs no torch
    import torch

    Enqueue = Callable[[tuple[torch.Tensor, ...], torch.Tensor | None, int], None]
    """(operands, workspace, raw stream) -> enqueues the plan. Checks nothing."""


def enqueue_tensors(cudnn: Any, graph: Any, handle: Any, uids: tuple[int, ...]) -> Enqueue:
    """The frontend's public way, in its ordered form. It serves every plan.

    Args:
        cudnn: the frontend.
        graph: that the plan was loaded into.
        handle: the calling thread's.
        uids: of the operands, in the order in which they will be given.
    """
    execute, set_stream = graph.execute, cudnn.set_stream

    def enqueue(operands: tuple[torch.Tensor, ...], workspace: torch.Tensor | None, stream: int) -> None:
        set_stream(handle, stream)
        execute(operands, workspace, handle, tensor_uids=uids)

    return enqueue


def enqueue_addresses(cudnn: Any, graph: Any, handle: Any, uids: tuple[int, ...]) -> Enqueue | None:
    """The same by bare addresses; None where the frontend has no such way, or where the plan is a python engine's.

    The frontend's own `execute` takes it for every plan of the backend's that is given as a mapping.
    """
    backend: Any = getattr(graph, "_lowered_graph", None)
    execute = getattr(backend, "_execute_with_raw_ptrs", None)
    if execute is None:
        return None
    try:
        if graph.selected_engine is not None:
            return None
        backend._prepare_variant_pack_template()  # noqa: SLF001 - as the frontend does before it asks for the uids
        wanted = tuple(backend._get_variant_pack_uids_sorted())  # noqa: SLF001 - the order that addresses come in
        backend_handle = int(handle.backend_handle)
    except (AttributeError, RuntimeError, TypeError):
        return None
    if wanted != tuple(sorted(uids)):
        return None
    set_stream, count = cudnn.set_stream, len(uids)
    # A new array each time: a signal's handler, or a finalizer, may call the same plan between its filling and its use.
    make_addresses, where = ctypes.c_void_p * count, ctypes.addressof
    in_order = None if wanted == uids else itemgetter(*map(uids.index, wanted))

    def enqueue(operands: tuple[torch.Tensor, ...], workspace: torch.Tensor | None, stream: int) -> None:
        if handle.stream != stream:
            set_stream(handle, stream)
        ordered = operands if in_order is None else in_order(operands)
        addresses = make_addresses(*[tensor.data_ptr() for tensor in ordered])
        scratch = 0 if workspace is None else workspace.data_ptr()
        execute(where(addresses), count, scratch, backend_handle, -1)  # -1: the plan that was loaded

    return enqueue
