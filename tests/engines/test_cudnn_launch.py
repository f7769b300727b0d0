"""What a plan is handed when it is launched by addresses: the real library's own order of the tensors."""

import ctypes
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.cudnn_host import CudnnHost
from tests.engines.problems import ALL
from tests.engines.test_cudnn_engine import engine_in_child
from tunefarm.engines.cudnn_launch import enqueue_addresses, enqueue_tensors
from tunefarm.model.errors import Declined
from tunefarm.model.job import Search
from tunefarm.model.problem import Problem
from tunefarm.ops import operation_of


class Watched:
    """A loaded graph of the real library that is never launched: what would be is written down."""

    selected_engine = None

    def __init__(self, graph: Any) -> None:
        self._graph = graph
        self.launched: list[tuple[tuple[int, ...], int, int, int]] = []

    @property
    def _lowered_graph(self) -> Any:
        backend = self._graph._lowered_graph
        return SimpleNamespace(
            _prepare_variant_pack_template=backend._prepare_variant_pack_template,
            _get_variant_pack_uids_sorted=backend._get_variant_pack_uids_sorted,
            _execute_with_raw_ptrs=self._write_down,
        )

    def _write_down(self, addresses: int, count: int, workspace: int, handle: int, plan: int) -> None:
        self.launched.append((read_addresses(addresses, count), workspace, handle, plan))


def read_addresses(where: int, count: int) -> tuple[int, ...]:
    return tuple((ctypes.c_uint64 * count).from_address(where))


def launch_both_ways(profile: str, problem: Problem) -> dict[str, Any]:
    """What the frontend would hand to a plan, and what is handed to it here, operands given in another order."""
    import cudnn

    engine = engine_in_child(profile)
    for candidate in engine.propose(problem, Search()).candidates:
        try:
            plan = engine.build(problem, candidate)
            break
        except Declined:
            continue
    graph = cudnn.pygraph(device_property=engine._properties)
    graph.deserialize(plan.blob)
    operation = operation_of(problem)
    tensors = dict(operation.make_inputs(problem, torch.device("cpu"), 0))
    for spec in problem.outputs:
        tensors[spec.name] = torch.empty_strided(spec.shape, spec.strides, dtype=getattr(torch, spec.dtype))
    uids = {spec.uid: tensors[spec.name] for spec in reversed(problem.tensors)}
    workspace = torch.empty(max(1, plan.workspace_bytes), dtype=torch.uint8)
    pack = graph._normalize(graph._uid_to_data(uids), workspace)
    watched, handle, streams = Watched(graph), SimpleNamespace(stream=0, backend_handle=7), []

    def set_stream(handle: Any, stream: int) -> None:
        streams.append(stream)
        handle.stream = stream

    enqueue = enqueue_addresses(SimpleNamespace(set_stream=set_stream), watched, handle, tuple(uids))
    assert enqueue is not None
    for stream in (0, 5, 5, 0):
        enqueue(tuple(uids.values()), workspace, stream)
    enqueue(tuple(uids.values()), None, 0)
    return {
        "frontend": (read_addresses(pack.address, len(pack)), pack.workspace),
        "given": sorted(tensor.data_ptr() for tensor in uids.values()),
        "launched": watched.launched,
        "streams": streams,
    }


@pytest.mark.cudnn
@pytest.mark.parametrize("problem", ALL.values(), ids=ALL)
def test_a_plan_is_handed_what_the_frontend_itself_would_hand_it(
    cudnn_child: CudnnHost, h200_profile: str, problem: Problem
) -> None:
    told = cudnn_child.run(launch_both_ways, h200_profile, problem)
    addresses, workspace = told["frontend"]
    assert sorted(addresses) == told["given"]
    assert told["launched"] == [(addresses, workspace, 7, -1)] * 4 + [(addresses, 0, 7, -1)]
    assert told["streams"] == [5, 0], "the handle is told a stream when it is another one"


def no_template() -> None:
    raise RuntimeError("none yet")


def odd(**changes: Any) -> SimpleNamespace:
    backend = {
        "_execute_with_raw_ptrs": pytest.fail,
        "_prepare_variant_pack_template": lambda: None,
        "_get_variant_pack_uids_sorted": lambda: [1, 2],
    }
    return SimpleNamespace(selected_engine=None, _lowered_graph=SimpleNamespace(**(backend | changes)))


@pytest.mark.parametrize(
    "graph",
    [
        SimpleNamespace(),
        SimpleNamespace(selected_engine=None, _lowered_graph=None),
        SimpleNamespace(selected_engine=None, _lowered_graph=SimpleNamespace()),
        SimpleNamespace(**{**vars(odd()), "selected_engine": object()}),
        odd(_get_variant_pack_uids_sorted=lambda: [1, 2, 3]),
        odd(_get_variant_pack_uids_sorted=list),
        odd(_prepare_variant_pack_template=no_template),
    ],
    ids=[
        "no backend",
        "not lowered",
        "an older frontend",
        "a python engine",
        "another count",
        "no uids",
        "no template",
    ],
)
def test_where_addresses_do_not_serve_the_public_way_does(graph: SimpleNamespace) -> None:
    handle = SimpleNamespace(stream=0, backend_handle=7)
    given = []
    graph.execute = lambda operands, workspace, handle, tensor_uids: given.append((operands, workspace, tensor_uids))
    cudnn = SimpleNamespace(set_stream=lambda handle, stream: given.append(stream))
    assert enqueue_addresses(cudnn, graph, handle, (2, 1)) is None
    operands = (torch.zeros(1), torch.zeros(1))
    enqueue_tensors(cudnn, graph, handle, (2, 1))(operands, None, 3)
    assert given == [3, (operands, None, (2, 1))]
