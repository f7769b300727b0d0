"""A target that every test may use."""

from tunefarm.model.target import Target

H200 = Target(
    kind="cuda",
    device="NVIDIA H200",
    compute_capability="9.0",
    cudnn="9.27.0",
    cudnn_frontend="1.32.0",
    torch="2.11.0",
    driver_cuda="13.0",
    profile="",
)
