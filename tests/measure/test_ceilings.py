from tunefarm.measure.ceilings import Ceilings
from tunefarm.measure.timing import Rotation
from tunefarm.ops.matmul import MatmulProblem

H200 = Ceilings(bytes_per_us=4.3e6, flops_per_us=790e6, l2_bytes=60 * 2**20)
SWEPT = Rotation(20, 20, sweep=True)
HOT = Rotation(20, 1, sweep=False)
LARGE = Rotation(2, 2, sweep=False)


def test_arithmetic_faster_than_the_ceiling_is_impossible_in_any_state_of_the_cache() -> None:
    problem = MatmulProblem(m=8192, n=8192, k=8192)
    least = problem.flops / H200.flops_per_us
    for rotation in (SWEPT, HOT, LARGE):
        assert H200.objection(problem, rotation, least / 1.25) == ""
        assert H200.objection(problem, rotation, least / 1.35) == (
            f"{least / 1.35:.1f} us is impossible: at 790 TFLOP/s, the most that this device was seen to reach, "
            f"it takes {least:.1f}"
        )


def test_traffic_faster_than_the_ceiling_is_impossible_where_l2_is_cold() -> None:
    problem = MatmulProblem(m=1, n=4096, k=14336)  # 117 MB of weights
    least = problem.bytes_moved / H200.bytes_per_us
    assert "at 4.30 TB/s" in H200.objection(problem, SWEPT, least / 1.35)
    assert H200.objection(problem, SWEPT, least / 1.25) == ""
    assert H200.objection(problem, HOT, least / 10) == ""


def test_writes_that_l2_may_hold_back_are_left_out() -> None:
    problem = MatmulProblem(m=4096, n=1024, k=8)  # 8 MB of output, next to no input
    assert H200.objection(problem, Rotation(5, 5, sweep=True), 0.2) == ""
    assert H200.objection(problem, Rotation(20, 20, sweep=True), 0.2) != ""


def test_of_a_large_set_that_is_not_swept_out_one_l2_is_left_out() -> None:
    problem = MatmulProblem(m=1, n=8192, k=16384)  # 268 MB
    least = problem.bytes_moved / H200.bytes_per_us
    assert H200.objection(problem, LARGE, least / 1.35) == ""
    assert H200.objection(problem, LARGE, least / 1.8) != ""
