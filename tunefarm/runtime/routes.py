"""Routes: what answers one kind of call in one thread, chosen once for its shapes, strides, dtypes and device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from tunefarm.model.problem import Problem, Role
from tunefarm.ops import operation_of
from tunefarm.runtime.calls import Call, Request
from tunefarm.runtime.launching import ALIGNMENT, LoadedPlan
from tunefarm.runtime.ledger import Tally

Operands = tuple[torch.Tensor, ...]
Route = Callable[[Operands], Any]
"""Tensors of a call -> its result: a tensor, or every output of a problem by name."""
Failed = Callable[[Exception], None]
"""Told what a plan raised when it was launched."""

_ODD = ALIGNMENT - 1


def torch_route(call: Call, tally: Tally) -> Route:
    """Torch's own answer, counted."""
    by_torch = call.by_torch

    def route(tensors: Operands) -> Any:
        tally.calls += 1
        return by_torch(*tensors)

    return route


def variant_route(request: Request, variant: str, tally: Tally, *, failed: Failed, instead: Route) -> Route:
    """One of torch's variants by name, such as attention held to one backend.

    Args:
        request: the call as a problem.
        variant: name of the baseline.
        tally: counts what it answers.
        failed: told if torch refuses to run it.
        instead: answers then.
    """
    problem = request.problem
    baseline = next(b for b in operation_of(problem).baselines(problem) if b.name == variant)
    specs = {spec.name: spec for spec in problem.tensors}
    forms = [(specs[name].shape, specs[name].strides) for name in request.operands]
    scalars = scalars_of(problem)
    ways = [baseline.run]

    def in_form(tensor: torch.Tensor, form: tuple[tuple[int, ...], tuple[int, ...]]) -> torch.Tensor:
        return tensor if tensor.shape == form[0] else tensor.as_strided(*form)

    def route(tensors: Operands) -> Any:
        inputs = dict(zip(request.operands, map(in_form, tensors, forms), strict=True))
        try:
            outputs = ways[0]({**inputs, **scalars} if scalars else inputs)
        except (torch.OutOfMemoryError, torch.AcceleratorError):
            raise
        except RuntimeError as refusal:
            failed(refusal)
            return instead(tensors)
        if baseline.direct is not None:
            ways[0] = baseline.direct  # torch took these shapes
        tally.calls += 1
        if request.output is None:
            return dict(outputs)
        output = outputs[request.output]
        return output if output.shape == request.shape else output.reshape(request.shape)

    return route


def plan_route(
    request: Request, plan: LoadedPlan, tally: Tally, *, failed: Failed, misaligned: Route, instead: Route
) -> Route:
    """A loaded plan.

    Args:
        request: the call as a problem.
        plan: what was loaded for it.
        tally: counts what it answers.
        failed: told what the plan raised.
        misaligned: answers calls with an address that plans can't take.
        instead: answers where the plan raised.
    """
    scalars = scalars_of(request.problem)
    by_value = tuple(scalars.values())
    outputs = [spec for spec in request.problem.outputs if request.output in {None, spec.name}]
    names = [spec.name for spec in outputs]
    launch = plan.launch((*request.operands, *names, *scalars))
    forms = [(spec.shape, spec.strides, getattr(torch, spec.dtype)) for spec in outputs]
    shape, strides, dtype = request.shape, request.strides, forms[0][2]
    allocate = plan.allocate

    def route(tensors: Operands) -> Any:
        for tensor in tensors:
            if tensor.data_ptr() & _ODD:
                return misaligned(tensors)
        output = allocate(shape, strides, dtype)
        try:
            launch((*tensors, output, *by_value))
        except torch.AcceleratorError:  # the device is lost, for torch too
            raise
        except Exception as error:  # noqa: BLE001 - whatever the frontend raises, torch can answer
            failed(error)
            return instead(tensors)
        tally.calls += 1
        return output

    def route_of_many(tensors: Operands) -> Any:
        """The same for all outputs of a problem, each as the problem says."""
        if any(tensor.data_ptr() & _ODD for tensor in tensors):
            return misaligned(tensors)
        made = tuple(allocate(*form) for form in forms)
        try:
            launch((*tensors, *made, *by_value))
        except torch.AcceleratorError:
            raise
        except Exception as error:  # noqa: BLE001 - as above
            failed(error)
            return instead(tensors)
        tally.calls += 1
        return dict(zip(names, made, strict=True))

    return route_of_many if request.output is None else route


def scalars_of(problem: Problem) -> Mapping[str, torch.Tensor]:
    """The host scalars that a plan takes by value, as the CPU tensors that cuDNN reads them from."""
    return {
        spec.name: torch.full(spec.shape, getattr(problem, spec.name), dtype=getattr(torch, spec.dtype))
        for spec in problem.tensors
        if spec.role is Role.SCALAR
    }
