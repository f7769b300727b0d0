"""cuDNN's refusals come out as one line that tells the cause."""

from types import SimpleNamespace

import pytest

from tunefarm.engines.cudnn_refusal import declining, reason_of
from tunefarm.model.errors import Declined


def block(engine_id: int, *warnings: tuple[str, str]) -> str:
    """What cuDNN's message holds for each engine config that it tried: the cause first, consequences after it."""
    config = f'{{"engineId":{engine_id},"smVersion":900,"knobChoices":{{"CUDNN_KNOB_TYPE_KERNEL_CFG":3}}}}'
    return "\n".join([config, *(f"Warning: CUDNN_STATUS_{code}; Reason: {reason}" for code, reason in warnings)])


PLACEHOLDER = block(-1, ("NOT_SUPPORTED", "The specified engine with global index -1 is not found at: x == y"))
SHAPE = block(
    4,
    ("NOT_SUPPORTED_SHAPE", "GEMM tensor A bits_per_access (16) must be a multiple of 128. at: bpa_a % 128 != 0"),
    ("NOT_SUPPORTED_SHAPE", "check_matmul_support_fort(node)"),
)
OTHER_GPU = block(
    10,
    ("NOT_SUPPORTED_ARCH_MISMATCH", "only Blackwell is supported for this engine at: !(1000 <= deviceVer)"),
    ("NOT_SUPPORTED", "finalize_internal()"),
)
REFUSED = f"the backend declined: No valid engine configs\n{PLACEHOLDER}\n\n{SHAPE}\n\n{SHAPE}\n\n{OTHER_GPU}"
CUDNN = SimpleNamespace(cudnnGraphNotSupportedError=type("cudnnGraphNotSupportedError", (Exception,), {}))


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (REFUSED, "no engine takes it: GEMM tensor A bits_per_access (16) must be a multiple of 128."),
        (OTHER_GPU, "no engine takes it: only Blackwell is supported for this engine"),
        ("hidden_dim should be multiple of 8", "hidden_dim should be multiple of 8"),
        ("Descriptor Failed\n  cudnn_status: ARCH_MISMATCH\n", "Descriptor Failed cudnn_status: ARCH_MISMATCH"),
        ("", ""),
    ],
)
def test_the_cause_is_kept_and_its_consequences_are_not(message: str, reason: str) -> None:
    assert reason_of(message) == reason


def test_a_long_reason_is_cut() -> None:
    assert len(reason_of("why " * 1000)) <= 240


@pytest.mark.parametrize(
    "refusal", [CUDNN.cudnnGraphNotSupportedError, RuntimeError, ValueError, NotImplementedError, ImportError]
)
def test_every_way_to_say_no_is_declined(refusal: type[Exception]) -> None:
    with pytest.raises(Declined, match="not this one"), declining(CUDNN):
        raise refusal("not this one")


def test_a_refusal_without_words_is_named_after_its_kind() -> None:
    with pytest.raises(Declined, match="NotImplementedError"), declining(CUDNN):
        raise NotImplementedError


@pytest.mark.parametrize("mistake", [TypeError, AttributeError, KeyError, IndexError])
def test_mistakes_of_ours_pass_through(mistake: type[Exception]) -> None:
    with pytest.raises(mistake), declining(CUDNN):
        raise mistake
