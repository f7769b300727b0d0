"""The engine `cudnn`: plans of cuDNN's graph API, its backend's and its frontend's python engines alike."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar

from tunefarm.engines.cudnn_blob import check_blob, kernels_of
from tunefarm.engines.cudnn_launch import enqueue_addresses, enqueue_tensors
from tunefarm.engines.cudnn_library import load_cudnn, require_driver
from tunefarm.engines.cudnn_lists import PlanLists
from tunefarm.engines.cudnn_notes import noted
from tunefarm.engines.cudnn_refusal import declining
from tunefarm.engines.engine import Engine, Executable, Launch
from tunefarm.model.candidate import Candidate, Plan, Proposal
from tunefarm.model.errors import Declined, UsageError
from tunefarm.model.job import Search, Space
from tunefarm.model.problem import Problem, Role, TensorSpec
from tunefarm.ops import operation_of

if TYPE_CHECKING:  # building for a device that isn't here needs no torch
    import torch

    from tunefarm.engines.cudnn_launch import Enqueue

_ALIGNMENT = 16
"""Bytes that every operand's address must be a multiple of. Plans promise it, and most don't check it."""
_of_thread = threading.local()


class CudnnEngine(Engine):
    """cuDNN's plans on the current device, or for a device that is not here."""

    name: ClassVar[str] = "cudnn"

    def __init__(self, profile: str | None) -> None:
        """Nothing of CUDA starts yet.

        Args:
            profile: cuDNN's JSON of a device's properties, taken with this version of cuDNN: plans are built for that
                device and can't be loaded here. None builds with a handle on torch's current device, which is the
                safer way: cuDNN 9.27 builds plans of matmul engine 4 from a profile that hang the GPU.

        Raises:
            Declined: no library, no driver, no device, or a profile that cuDNN can't read.
        """
        self._cudnn = load_cudnn()
        require_driver()
        self._profile: dict[str, Any] | None = None
        if profile is None:
            _require_device()
        else:
            with declining(self._cudnn):
                self._properties = self._cudnn.create_device_properties(profile)
                self._profile = json.loads(profile)
        self._kernel_caches: dict[tuple[Any, str, str], Any] = {}
        self._problem = ""
        self._lists: dict[tuple[Any, bool], PlanLists] = {}

    def propose(self, problem: Problem, search: Search) -> Proposal:
        try:
            candidates = self._noted(problem, self._lists_of(problem, dynamic=False).candidates(), dynamic=False)
        except Declined as refusal:
            return Proposal(self.name, refusal=str(refusal))
        if search.dynamic:
            with suppress(Declined):  # many graphs have no dynamic form; they keep their static candidates
                dynamic = self._lists_of(problem, dynamic=True).candidates()
                candidates += self._noted(problem, dynamic, dynamic=True)
        return Proposal(self.name, candidates)

    def widen(self, problem: Problem, search: Search) -> tuple[Candidate, ...]:
        if search.space is Space.HEURISTIC:
            return ()
        wider = self._lists_of(problem, dynamic=False).widened(everything=search.space is Space.EXHAUSTIVE)
        return self._noted(problem, wider, dynamic=False)

    def build(self, problem: Problem, candidate: Candidate) -> Plan:
        graph, place = self._lists_of(problem, dynamic=candidate.dynamic).find(candidate)
        began = time.perf_counter()
        with declining(self._cudnn):
            graph.build_plan_at_index(place)
            blob: bytes = graph.serialize(as_bytes=True)  # holds what was built last
            workspace_bytes = int(graph.get_workspace_size_plan_at_index(place))
        build_ms = (time.perf_counter() - began) * 1e3
        return Plan(candidate, blob, workspace_bytes, build_ms, check_blob(blob, candidate).knobs, kernels_of(blob))

    def load(self, problem: Problem, plan: Plan) -> Executable:
        if self._profile is not None:
            raise Declined("this engine builds for a device that is not here: it can't load plans")
        check_blob(plan.blob, plan.candidate)
        handle = self._handle()
        graph = self._cudnn.pygraph(handle=handle)
        with declining(self._cudnn):
            # A python engine would otherwise compile anew where its kernels don't fit: not the plan that was measured.
            graph.deserialize(handle, plan.blob, enforce_precompiled=True)
            workspace_bytes = int(graph.get_workspace_size())
        return CudnnExecutable(self._cudnn, graph, handle, problem, workspace_bytes)

    def _lists_of(self, problem: Problem, *, dynamic: bool) -> PlanLists:
        """The heuristic lists of a problem. The latest problem's are kept, so that its candidates share them."""
        if problem.key != self._problem:
            self._problem, self._lists = problem.key, {}
        handle = self._handle()
        if (handle, dynamic) not in self._lists:
            self._lists[handle, dynamic] = PlanLists(
                self._cudnn, lambda: self._new_graph(problem, handle, dynamic=dynamic), dynamic=dynamic
            )
        return self._lists[handle, dynamic]

    def _noted(self, problem: Problem, candidates: tuple[Candidate, ...], *, dynamic: bool) -> tuple[Candidate, ...]:
        handle = self._handle()
        return noted(self._cudnn, lambda: self._new_graph(problem, handle, dynamic=dynamic), candidates)

    def _new_graph(self, problem: Problem, handle: Any, *, dynamic: bool) -> Any:
        where: dict[str, Any]
        if self._profile is None:
            where = {"handle": handle}
        else:
            where = {
                "device_property": self._properties,
                "sm_version": self._profile["deviceVer"] // 10,  # unset, attention looks for a device
                "sm_count": self._profile["multiProcessorCount"],
            }
        if dynamic:
            where |= {"is_dynamic_shape_enabled": True, "kernel_cache": self._kernel_cache(problem, handle)}
        precision = self._cudnn.data_type.FLOAT
        graph = self._cudnn.pygraph(
            name=problem.op, intermediate_data_type=precision, compute_data_type=precision, **where
        )
        operation_of(problem).build_graph(problem, graph)
        return graph

    def _kernel_cache(self, problem: Problem, handle: Any) -> Any:
        """The compiled kernels that problems of one structure share. It holds every engine and knob setting of it."""
        key = (handle, problem.op, problem.structure)
        if key not in self._kernel_caches:
            self._kernel_caches[key] = self._cudnn.create_kernel_cache()
        return self._kernel_caches[key]

    def _handle(self) -> Any:
        """This thread's handle on torch's current device; None where plans are built from a profile.

        cuDNN forbids sharing one among threads, and it belongs to the device that was current when it was made.
        """
        if self._profile is not None:
            return None
        import torch

        device = torch.cuda.current_device()
        handles: dict[int, Any] = _of_thread.__dict__.setdefault("handles", {})
        if device not in handles:
            with declining(self._cudnn):
                handles[device] = self._cudnn.create_handle()
        return handles[device]


class CudnnExecutable(Executable):
    """A loaded plan of cuDNN."""

    def __init__(self, cudnn: Any, graph: Any, handle: Any, problem: Problem, workspace_bytes: int) -> None:
        self.workspace_bytes = workspace_bytes
        self._cudnn = cudnn
        self._graph = graph
        self._handle = handle
        self._problem = problem

    def bind(
        self, inputs: Mapping[str, torch.Tensor], outputs: dict[str, torch.Tensor], workspace: torch.Tensor | None
    ) -> Launch:
        import torch

        given = {**inputs, **outputs}
        specs = self._problem.tensors
        device = torch.device("cuda", torch.cuda.current_device())
        for spec in specs:
            _check_operand(spec, given[spec.name], device)
        held = 0 if workspace is None else workspace.numel() * workspace.element_size()
        if held < self.workspace_bytes:
            raise UsageError(f"the workspace has {held} bytes, the plan needs {self.workspace_bytes}")
        # Scalars that the plan takes by value are read from CPU tensors.
        operands = tuple(given[spec.name] for spec in specs)
        enqueue = enqueue_tensors(self._cudnn, self._graph, self._handle, tuple(spec.uid for spec in specs))
        current_stream = torch.cuda.current_stream

        def launch() -> None:
            enqueue(operands, workspace, current_stream(device).cuda_stream)

        return launch

    def enqueuer(self, uids: tuple[int, ...]) -> Enqueue:
        """The plan as a function of its operands, for callers that checked them already: the way that costs least.

        Args:
            uids: of the operands, in the order in which they will be given: every one of the problem's once.
        """
        loaded = (self._cudnn, self._graph, self._handle, uids)
        return enqueue_addresses(*loaded) or enqueue_tensors(*loaded)


def _require_device() -> None:
    import torch

    if not torch.cuda.is_available():
        raise Declined("no NVIDIA GPU that torch can use; give a device's profile to build plans without one")


def _check_operand(spec: TensorSpec, tensor: torch.Tensor, device: torch.device) -> None:
    """Refuse a tensor that the plan would read or write wrongly: plans see addresses only.

    Raises:
        UsageError: names the tensor and what is wrong with it.
    """
    shape, strides = tuple(tensor.shape), tuple(tensor.stride())
    dtype = str(tensor.dtype).removeprefix("torch.")
    if dtype != spec.dtype or shape != spec.shape:
        raise UsageError(f"tensor {spec.name} is {dtype} {shape}, the plan wants {spec.dtype} {spec.shape}")
    if any(n > 1 and have != want for n, have, want in zip(shape, strides, spec.strides, strict=True)):
        raise UsageError(f"tensor {spec.name} has strides {strides}, the plan wants {spec.strides}")
    if spec.role is Role.SCALAR:
        if tensor.device.type != "cpu":
            raise UsageError(f"scalar {spec.name} is on {tensor.device}, the plan reads it from the CPU")
        return
    if tensor.device != device:
        raise UsageError(f"tensor {spec.name} is on {tensor.device}, the plan runs on {device}")
    if tensor.data_ptr() % _ALIGNMENT:
        raise UsageError(f"tensor {spec.name} begins at an address that is no multiple of {_ALIGNMENT} bytes")
