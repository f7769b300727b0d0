"""Which entry of a bundle serves a problem on a machine: a pure function of both, which says why the others do not."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tunefarm.model.problem import Problem
from tunefarm.model.target import Target
from tunefarm.runtime.manifest import Entry, Manifest


@dataclass(frozen=True)
class Offer:
    """An entry, with the target that its plan was built and measured on."""

    entry: Entry
    target: Target


@dataclass(frozen=True)
class Rejected:
    """An offer that does not fit, and why."""

    offer: Offer
    reason: str
    """One line that names both values: the plan's and the machine's."""


@dataclass(frozen=True)
class Hit:
    """The offer that serves, and all others that were there for the problem."""

    offer: Offer
    rejected: tuple[Rejected, ...] = ()


@dataclass(frozen=True)
class Miss:
    """No offer serves: every one that was there for the problem, with its reason."""

    rejected: tuple[Rejected, ...] = ()
    machine: str = ""
    """Why no offer could ever serve there; empty for a machine that plans are made for."""

    @property
    def reason(self) -> str:
        """One line."""
        if self.machine:
            return self.machine
        if not self.rejected:
            return "the bundle has no entry for this problem"
        return "; ".join(dict.fromkeys(rejected.reason for rejected in self.rejected))


Found = Hit | Miss
Offers = Mapping[str, tuple[Offer, ...]]
"""The offers for each problem, by its key."""


def offers_of(manifest: Manifest) -> Offers:
    """The manifest's entries as offers, in its order."""
    targets = {target.key: target for target in manifest.targets}
    offers: defaultdict[str, list[Offer]] = defaultdict(list)
    for entry in manifest.entries:
        offers[entry.problem.key].append(Offer(entry, targets[entry.target]))
    return {key: tuple(held) for key, held in offers.items()}


def find(offers: Offers, problem: Problem, machine: Target) -> Found:
    """The best offer for a problem on a machine, or why there is none.

    Of several that fit, one of the same device's name comes first, then the one of the newest driver: the nearest to
    this machine.
    """
    fitting: list[Offer] = []
    rejected: list[Rejected] = []
    for offer in offers.get(problem.key, ()):
        reason = misfit(offer, machine)
        if reason is None:
            fitting.append(offer)
        else:
            rejected.append(Rejected(offer, reason))
    if not fitting:
        return Miss(tuple(rejected))
    best = max(fitting, key=lambda offer: nearness(offer.target, machine))  # the first of equals
    return Hit(
        best,
        (
            *rejected,
            *(Rejected(offer, "another entry is nearer to this machine") for offer in fitting if offer != best),
        ),
    )


def misfit(offer: Offer, machine: Target) -> str | None:
    """Why a machine can't use an offer; None if it can.

    A plan of cuDNN needs the exact library, an equal device and a driver at least as new. Torch's own kernels come with
    the machine's torch: for them the device alone must be equal, since what is fastest depends on it.
    """
    candidate, made_on = offer.entry.candidate, offer.target
    if made_on.kind != machine.kind:
        return f"it is for kind {made_on.kind}, this machine's is {machine.kind}"
    if candidate.engine != "torch":
        return _other_library(made_on, machine)
    if candidate.name == "compile":
        return "torch.compile was fastest, whose code can't be shipped: compile the model around the call"
    return _differing_device(made_on, machine, shared_only=True)


def same_machine_code(offer: Offer, machine: Target) -> bool:
    """Whether cuDNN would build the same code again here as was measured: equal library and device."""
    equal = offer.target.cudnn == machine.cudnn and offer.target.kind == machine.kind
    return equal and _differing_device(offer.target, machine, shared_only=False) is None


def nearness(target: Target, machine: Target) -> tuple[bool, tuple[int, ...]]:
    """How near a target is to a machine: more is nearer."""
    return target.device == machine.device, _version(target.driver_cuda)


def _other_library(made_on: Target, machine: Target) -> str | None:
    """What keeps a plan of cuDNN from loading on a machine; None if nothing does."""
    for what, theirs, ours in (
        ("cuDNN", made_on.cudnn, machine.cudnn),
        ("the cuDNN frontend", made_on.cudnn_frontend, machine.cudnn_frontend),
    ):
        if theirs != ours:
            return f"it needs {what} {theirs}, here is {ours or 'none'}"
    if difference := _differing_device(made_on, machine, shared_only=False):
        return difference
    if _version(machine.driver_cuda) < _version(made_on.driver_cuda):
        return f"it needs a driver for CUDA {made_on.driver_cuda} or newer, here is {machine.driver_cuda or 'none'}"
    return None


def _differing_device(made_on: Target, machine: Target, *, shared_only: bool) -> str | None:
    """How the binding properties differ. `shared_only`: versions of cuDNN know different sets of them."""
    theirs, ours = made_on.binding, machine.binding
    names: Sequence[str] = sorted(theirs.keys() & ours.keys() if shared_only else theirs.keys() | ours.keys())
    different = [
        f"{name} {theirs.get(name, 'unknown')}, here {ours.get(name, 'unknown')}"
        for name in names
        if theirs.get(name) != ours.get(name)
    ]
    return f"it is for another device: {', '.join(different)}" if different else None


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".") if part.isdecimal())
