"""What planted candidates do wrong. Each is as fast as it likes, and none may win."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from tests.measure.planted import Deed, Outputs, PlantedExecutable, right

Inputs = Mapping[str, torch.Tensor]


def after(change: Callable[[PlantedExecutable, Inputs, Outputs, torch.Tensor | None], None]) -> Deed:
    """A right candidate, and then something else."""

    def deed(executable: PlantedExecutable, inputs: Inputs, outputs: Outputs, workspace: torch.Tensor | None) -> None:
        right(executable, inputs, outputs, workspace)
        change(executable, inputs, outputs, workspace)

    return deed


def main(outputs: Outputs) -> torch.Tensor:
    """The first output."""
    return next(iter(outputs.values()))


def nothing(*_: object) -> None:
    """Leaves what it finds."""


def half(executable: PlantedExecutable, inputs: Inputs, outputs: Outputs, _: object) -> None:
    for name, value in executable.answer(inputs).items():
        flat = outputs[name].view(-1) if outputs[name].is_contiguous() else outputs[name].movedim(1, -1).view(-1)
        source = value if outputs[name].is_contiguous() else value.movedim(1, -1)
        flat[: flat.numel() // 2] = source.reshape(-1)[: flat.numel() // 2]


def zeros(_: object, __: object, outputs: Outputs, ___: object) -> None:
    for tensor in outputs.values():
        tensor.zero_()


@after
def one_element(_: object, __: object, outputs: Outputs, ___: object) -> None:
    y = main(outputs)
    place = (y.double().abs() - y.double().square().mean().sqrt()).abs().argmin()
    index = torch.unravel_index(place, y.shape)
    y[index] *= 1.1


@after
def forgets_a_statistic(_: object, __: object, outputs: Outputs, ___: object) -> None:
    list(outputs.values())[-1].fill_(torch.nan)


@after
def scaled(executable: PlantedExecutable, inputs: Inputs, outputs: Outputs, _: object) -> None:
    main(outputs).mul_(1.01)


@after
def right_ten_times(executable: PlantedExecutable, _: object, outputs: Outputs, __: object) -> None:
    if executable.launches > 10:
        main(outputs).mul_(0.5)


@after
def idle_after_ten(executable: PlantedExecutable, _: object, outputs: Outputs, __: object) -> None:
    if executable.launches > 10:
        main(outputs).fill_(torch.nan)


@after
def writes_to_inputs(_: object, inputs: Inputs, __: object, ___: object) -> None:
    main(inputs)[0, 0] += 1


@after
def writes_past_an_output(_: object, __: object, outputs: Outputs, ___: object) -> None:
    y = main(outputs)
    beyond = y.storage_offset() + y.numel()
    if beyond < y.untyped_storage().nbytes() // y.element_size():  # timed sets have no margin to write to
        y.as_strided((1,), (1,), beyond).fill_(1.0)


@after
def writes_before_its_workspace(_: object, __: object, ___: object, workspace: torch.Tensor | None) -> None:
    assert workspace is not None
    if workspace.storage_offset():
        workspace.as_strided((1,), (1,), workspace.storage_offset() - 1).fill_(0)


@after
def believes_its_workspace_is_zero(_: object, __: object, outputs: Outputs, workspace: torch.Tensor | None) -> None:
    assert workspace is not None
    # A bit that TF32 does not round away either.
    view, bit = (torch.int16, 10) if main(outputs).element_size() == 2 else (torch.int32, 20)
    main(outputs).view(view).bitwise_xor_(int(workspace[5] != 0) << bit)


@after
def believes_its_workspace_is_garbage(_: object, __: object, outputs: Outputs, workspace: torch.Tensor | None) -> None:
    assert workspace is not None
    if not workspace.any():
        main(outputs).mul_(0.9)


def of_another_type(executable: PlantedExecutable, inputs: Inputs, outputs: Outputs, _: object) -> None:
    for name, value in executable.answer(inputs).items():
        outputs[name] = value.double()


def left_unwritten(_: object, __: object, outputs: Outputs, ___: object) -> None:
    """Allocates outputs of its own, as torch does, and forgets to write them: memory of the one before, often."""
    for name, tensor in outputs.items():
        outputs[name] = torch.empty_like(tensor)


def own_outputs(executable: PlantedExecutable, inputs: Inputs, outputs: Outputs, _: object) -> None:
    """Right, and allocates outputs of its own at each launch, as torch does."""
    for name, value in executable.answer(inputs).items():
        outputs[name] = torch.empty_like(outputs[name]).copy_(value)


def thief() -> tuple[Deed, Deed]:
    """A right candidate, and one that hands out the tensors that the former made."""
    loot: Outputs = {}

    def victim(executable: PlantedExecutable, inputs: Inputs, outputs: Outputs, _: object) -> None:
        own_outputs(executable, inputs, outputs, None)
        loot.update(outputs)

    def steal(_: object, __: object, outputs: Outputs, ___: object) -> None:
        outputs.update(loot)

    return victim, steal


def lazy() -> Deed:
    """Computes once, and hands out the same tensors ever after."""
    kept: Outputs = {}

    def deed(executable: PlantedExecutable, inputs: Inputs, outputs: Outputs, _: object) -> None:
        if not kept:
            kept.update(outputs)
            own_outputs(executable, inputs, kept, None)
        outputs.update(kept)

    return deed


def memorised() -> Deed:
    """Right for the first inputs that it meets, whose answer it gives to all."""
    first: list[Outputs] = []

    def deed(executable: PlantedExecutable, inputs: Inputs, outputs: Outputs, _: object) -> None:
        first.append(first[0] if first else executable.answer(inputs))
        for name, value in first[0].items():
            outputs[name].copy_(value)

    return deed


def raises_at(launch: int) -> Deed:
    @after
    def deed(executable: PlantedExecutable, *_: object) -> None:
        if executable.launches == launch:
            raise RuntimeError(f"planted at launch {launch},\nin two lines")

    return deed


WRONG: dict[str, Deed] = {deed.__name__: deed for deed in (nothing, half, zeros, of_another_type, left_unwritten)} | {
    "one_element": one_element,
    "forgets_a_statistic": forgets_a_statistic,
    "scaled": scaled,
    "right_ten_times": right_ten_times,
    "idle_after_ten": idle_after_ten,
    "writes_to_inputs": writes_to_inputs,
    "writes_past_an_output": writes_past_an_output,
    "writes_before_its_workspace": writes_before_its_workspace,
    "believes_its_workspace_is_zero": believes_its_workspace_is_zero,
    "believes_its_workspace_is_garbage": believes_its_workspace_is_garbage,
}
