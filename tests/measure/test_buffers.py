import pytest
import torch

from tests.measure.planted import PlantedExecutable, right
from tests.measure.problems import PROBLEMS
from tunefarm.measure.buffers import Guarded, SetPool, copy_of, fill_garbage, poison, same_bits, set_bytes
from tunefarm.model.problem import Problem, Role
from tunefarm.ops import operation_of
from tunefarm.ops.conv import ConvProblem
from tunefarm.ops.matmul import MatmulProblem

CPU = torch.device("cpu")


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda p: p.label)
def test_a_guarded_tensor_has_its_spec_s_shape_and_is_aligned(problem: Problem) -> None:
    for spec in problem.outputs:
        guard = Guarded(spec.span * spec.dtype.size, CPU)
        tensor = guard.tensor(spec)
        assert (tuple(tensor.shape), tensor.stride()) == (spec.shape, spec.strides)
        assert str(tensor.dtype) == f"torch.{spec.dtype}"
        assert tensor.data_ptr() - tensor.untyped_storage().data_ptr() == 4096
        tensor.fill_(1)
        assert guard.trespasses() == 0


@pytest.mark.parametrize("place", [-1, -4096, 10, 4105])
def test_one_byte_outside_is_seen_once(place: int) -> None:
    guard = Guarded(10, CPU)
    guard.bytes.as_strided((1,), (1,), 4096 + place).fill_(0)
    assert guard.trespasses() == 1
    assert guard.trespasses() == 0


def test_a_workspace_has_exactly_its_size() -> None:
    assert Guarded(1_000_001, CPU).bytes.numel() == 1_000_001


@pytest.mark.parametrize("size", [1, 15, 16, 4096, 100_003])
def test_garbage_is_the_same_for_a_seed_and_has_stretches_of_ones(size: int) -> None:
    a, b, c = (torch.zeros(size, dtype=torch.uint8) for _ in range(3))
    fill_garbage(a, 1)
    fill_garbage(b, 1)
    fill_garbage(c, 2)
    assert torch.equal(a, b)
    if size >= 16:
        assert (a[:16] == 255).all()
    if size > 1000:
        assert not torch.equal(a, c)
        assert 0.09 < (a == 255).float().mean() < 0.12


def test_bits_tell_nan_from_nan_and_zero_from_minus_zero() -> None:
    nan = torch.full((3,), torch.nan)
    assert same_bits(nan, nan.clone())
    assert not same_bits(torch.zeros(3), -torch.zeros(3))
    image = torch.randn(1, 4, 3, 3).to(memory_format=torch.channels_last)
    assert same_bits(image, copy_of(image))
    assert copy_of(image).stride() == image.stride()


def test_poison_leaves_what_can_t_be_nan() -> None:
    tensors = [torch.ones(2), torch.ones(2, dtype=torch.int32)]
    poison(tensors)
    assert tensors[0].isnan().all()
    assert tensors[1].tolist() == [1, 1]


def test_sets_are_equal_and_share_no_memory_but_scalars() -> None:
    problem = MatmulProblem(m=8, n=8, k=8, alpha=0.5, bias=True)
    inputs = operation_of(problem).make_inputs(problem, CPU, 0)
    pool = SetPool(problem, inputs, CPU, [64], 2**20)
    executable = PlantedExecutable(problem, right, workspace_bytes=64)
    launches = [pool.bind(executable, i) for i in range(3)]
    tensors = [t for bound in launches for t in bound.outputs.values()]
    tensors += [bound.launch.workspace for bound in launches]
    tensors += [pool.inputs(i)[t.name] for i in range(3) for t in problem.inputs if t.role is Role.INPUT]
    assert len({t.data_ptr() for t in tensors}) == len(tensors)
    for name, tensor in inputs.items():
        assert all(same_bits(pool.inputs(i)[name], tensor) for i in range(3))
    assert pool.inputs(2)["alpha"] is inputs["alpha"]


def test_candidates_share_sets_but_not_the_dicts_that_they_may_change() -> None:
    problem = ConvProblem(in_channels=4, height=4, out_channels=4, kernel=1)
    pool = SetPool(problem, operation_of(problem).make_inputs(problem, CPU, 0), CPU, [], 2**20)
    executable = PlantedExecutable(problem, right)
    a, b = pool.bind(executable, 0), pool.bind(executable, 0)
    assert a.outputs["y"] is b.outputs["y"]
    assert a.outputs["y"].stride() == problem.outputs[0].strides
    a.outputs["y"] = torch.zeros(())
    assert b.outputs["y"].ndim == 4


def test_large_workspaces_take_turns_and_small_ones_don_t() -> None:
    problem = MatmulProblem(m=8, n=8, k=8)
    pool = SetPool(problem, operation_of(problem).make_inputs(problem, CPU, 0), CPU, [100, 1000, 4000], 4000)

    def places(size: int) -> list[int]:
        executable = PlantedExecutable(problem, right, workspace_bytes=size)
        workspaces = [pool.bind(executable, i).launch.workspace for i in range(6)]
        assert {w.numel() for w in workspaces} == {size}
        return [w.data_ptr() for w in workspaces]

    assert len(set(places(4000))) == 2
    assert len(set(places(1000))) == 4
    assert len(set(places(100))) == 6


def test_set_bytes_count_device_memory() -> None:
    assert set_bytes(MatmulProblem(m=8, n=16, k=32, alpha=2.0, amax=True)) == 2 * (8 * 32 + 32 * 16 + 8 * 16) + 4
