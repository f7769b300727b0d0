"""Random inputs. Their values matter: power draw and so speed depend on them, and zeros would hide a wrong plan.

Numbers come from a generator on the device that they are for, so that gigabytes take milliseconds. The same seed gives
the same numbers on devices of one kind; a CPU's and a GPU's differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from tunefarm.model.problem import TensorSpec

if TYPE_CHECKING:
    import torch


def normal_tensors(
    specs: Iterable[TensorSpec], device: torch.device, seed: int, deviations: Mapping[str, float]
) -> dict[str, torch.Tensor]:
    """Tensors of the specs' shapes, strides and dtypes, drawn in order from one generator.

    Args:
        specs: tensors without gaps: each addresses every element of its span.
        device: where the tensors live.
        seed: seed of the generator.
        deviations: standard deviation by name, where it is not 1.
    """
    import torch

    generator = torch.Generator(device).manual_seed(seed)
    tensors = {}
    for spec in specs:
        storage = torch.empty(spec.span, dtype=getattr(torch, spec.dtype), device=device)
        storage.normal_(0.0, deviations.get(spec.name, 1.0), generator=generator)
        tensors[spec.name] = storage.as_strided(spec.shape, spec.strides)
    return tensors
