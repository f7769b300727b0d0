"""The part of cuDNN's space of engines and knobs that pays: beyond what its heuristics list."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, product
from typing import Any

from tunefarm.model.candidate import Candidate

SPACE = "knobs"
"""Who proposes a candidate of this space."""
SWEPT = "KERNEL_CFG"
"""The knob that is tried over its whole range: which kernel an engine compiles, with its tiles and pipeline. On an H200
it held the best plan of five linear layers of seven that the heuristics missed."""
SPLIT = "SPLIT_K_SLC"
"""Into how many parts a sum is cut, each for another block of threads: pays where there are few tiles."""
SPLITS = (2,)
"""Tried with every kernel. Of seven linear layers recorded on an H200, two parts won three; 4, 8 and 16 won none."""


MOST = 4096
"""Settings of one engine in an exhaustive search. Only convolutions, whose knobs are many, have more."""


def settings(
    cudnn: Any, graph: Any, listed: Sequence[Candidate], *, everything: bool
) -> Iterator[tuple[int, Mapping[str, int]]]:
    """(engine, knobs) to try on a graph.

    Every kernel of each engine that a heuristic names, whole and with split sums. Engines that none names for the
    problem are of other architectures or far slower, and those that are listed as fallbacks alone may take 20 s a
    build. With `everything` these too, and every value of all knobs; but sums are split into powers of two alone, since
    each kernel would have 128 splits else.

    Args:
        cudnn: the frontend.
        graph: with its plans created: cuDNN 9.19 kills the process that asks earlier for an attention's ranges.
        listed: what the heuristics list for it.
        everything: whether the search is exhaustive.
    """
    if everything:
        for engine_id in range(graph.get_engine_count()):
            ranges = _ranges(cudnn, graph, engine_id)
            if SPLIT in ranges:
                ranges[SPLIT] = [parts for parts in ranges[SPLIT] if parts & (parts - 1) == 0]
            for values in islice(product(*ranges.values()), MOST):
                yield engine_id, dict(zip(ranges, values, strict=True))
        return
    engines = dict.fromkeys(c.engine_id for c in listed if c.engine_id is not None and c.proposed_by != "FALLBACK")
    for engine_id in engines:
        ranges = _ranges(cudnn, graph, engine_id)
        if SWEPT not in ranges:
            continue
        for value in ranges[SWEPT]:
            yield engine_id, {SWEPT: value}
            if SPLIT in ranges:
                yield from ((engine_id, {SWEPT: value, SPLIT: parts}) for parts in SPLITS)


def _ranges(cudnn: Any, graph: Any, engine_id: int) -> dict[str, Sequence[int]]:
    """Values of each knob of an engine; none where cuDNN does not tell."""
    try:
        knobs = graph.get_knobs_for_engine(engine_id)
    except (cudnn.cudnnGraphNotSupportedError, RuntimeError, ValueError):
        return {}  # precompiled engines of convolutions, say, where there is no device
    return {k.type.name: range(k.min_value, k.max_value + 1, max(1, k.stride)) for k in knobs}
