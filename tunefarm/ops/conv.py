"""Convolutions: 2D forward, with bias and activation fused on."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar

from tunefarm.model.dtypes import DType
from tunefarm.model.errors import InvalidProblem
from tunefarm.model.problem import Problem, Role, TensorSpec, option
from tunefarm.ops.activation import Activation, Elementwise
from tunefarm.ops.baselines import compiled
from tunefarm.ops.fields import default_to_fields
from tunefarm.ops.graphs import add_activation, add_input, mark_output
from tunefarm.ops.inputs import normal_tensors
from tunefarm.ops.layouts import packed_strides
from tunefarm.ops.operation import Baseline, Operation, Tensors

if TYPE_CHECKING:
    import cudnn
    import torch


class ConvLayout(StrEnum):
    """Order in memory of image, filter and output. Shapes are NCHW and KCRS in both."""

    NHWC = "nhwc"
    """Channels last: image and output NHWC, filter KRSC."""
    NCHW = "nchw"

    @property
    def order(self) -> tuple[int, ...]:
        """The axes, slowest first."""
        return (0, 2, 3, 1) if self is ConvLayout.NHWC else (0, 1, 2, 3)


@dataclass(frozen=True, kw_only=True)
class ConvProblem(Problem):
    """Y = activation(conv2d(X, W) + bias), a cross-correlation as torch's, accumulated in float32.

    A field that ends in `_w` is of the width, its twin without of the height and, unless the former is given, of both.

    Tensors (uid, name):

    - 1 `x` [batch, in_channels, height, width]
    - 2 `w` [out_channels, in_channels / groups, kernel, kernel_w]
    - 3 `bias` [1, out_channels, 1, 1]; only with bias
    - 4 `y` [batch, out_channels, out_height, out_width]
    """

    op: ClassVar[str] = "conv"

    batch: int = option("images", default=1, low=1)
    in_channels: int = option("channels of the input", low=1)
    height: int = option("rows of the input", low=1)
    width: int = option("columns of the input; 0: as height", default=0, low=0)
    out_channels: int = option("channels of the output", low=1)
    kernel: int = option("rows of the filter", low=1)
    kernel_w: int = option("columns of the filter; 0: as kernel", default=0, low=0)
    stride: int = option("step of the filter over rows", default=1, low=1)
    stride_w: int = option("step of the filter over columns; 0: as stride", default=0, low=0)
    padding: int = option("rows of zeros above, and as many below", default=0, low=0)
    padding_w: int = option(
        "columns of zeros on the left, and as many on the right; -1: as padding", default=-1, low=-1
    )
    dilation: int = option("distance between rows of the filter", default=1, low=1)
    dilation_w: int = option("distance between columns of the filter; 0: as dilation", default=0, low=0)
    groups: int = option("groups of channels that don't mix", default=1, low=1)
    dtype: DType = option("element type of every tensor", default=DType.BFLOAT16)
    layout: ConvLayout = option("order in memory of every tensor", default=ConvLayout.NHWC)
    bias: bool = option("add a value to each output channel", default=False)
    activation: Activation = option("function of each element", default=Activation.NONE)

    def __post_init__(self) -> None:
        default_to_fields(self, 0, width="height", kernel_w="kernel", stride_w="stride", dilation_w="dilation")
        default_to_fields(self, -1, padding_w="padding")
        super().__post_init__()

    def check(self) -> None:
        for name in ("in_channels", "out_channels"):
            channels = getattr(self, name)
            if channels % self.groups:
                raise InvalidProblem("groups", f"{self.groups} does not divide {name}, which is {channels}")
        for name, size, padding, reach in (
            ("height", self.height, self.padding, (self.kernel - 1) * self.dilation + 1),
            ("width", self.width, self.padding_w, (self.kernel_w - 1) * self.dilation_w + 1),
        ):
            if size + 2 * padding < reach:
                raise InvalidProblem(
                    name,
                    f"{size} and padding of {padding} on both sides make {size + 2 * padding}, "
                    f"but the dilated kernel spans {reach}; no output is left",
                )

    @property
    def out_height(self) -> int:
        """Rows of the output."""
        return (self.height + 2 * self.padding - (self.kernel - 1) * self.dilation - 1) // self.stride + 1

    @property
    def out_width(self) -> int:
        """Columns of the output."""
        return (self.width + 2 * self.padding_w - (self.kernel_w - 1) * self.dilation_w - 1) // self.stride_w + 1

    @property
    def tensors(self) -> tuple[TensorSpec, ...]:
        filter_channels = self.in_channels // self.groups

        def spec(uid: int, name: str, role: Role, *shape: int) -> TensorSpec:
            return TensorSpec(uid, name, role, shape, packed_strides(shape, self.layout.order), self.dtype)

        x = spec(1, "x", Role.INPUT, self.batch, self.in_channels, self.height, self.width)
        w = spec(2, "w", Role.INPUT, self.out_channels, filter_channels, self.kernel, self.kernel_w)
        bias = spec(3, "bias", Role.INPUT, 1, self.out_channels, 1, 1)
        y = spec(4, "y", Role.OUTPUT, self.batch, self.out_channels, self.out_height, self.out_width)
        return (x, w, *[bias] * self.bias, y)

    @property
    def _options(self) -> str:
        steps = {
            "s": (self.stride, self.stride_w, 1),
            "p": (self.padding, self.padding_w, 0),
            "d": (self.dilation, self.dilation_w, 1),
        }
        words = [f"{self.kernel}x{self.kernel_w}"]
        words += [
            f"{sign}{h}" if h == w else f"{sign}{h}x{w}"
            for sign, (h, w, usual) in steps.items()
            if (h, w) != (usual, usual)
        ]
        words += [f"g{self.groups}"] * (self.groups > 1)
        words += [self.dtype, self.layout]
        words += ["bias"] * self.bias
        words += [self.activation] * (self.activation is not Activation.NONE)
        return " ".join(words)

    @property
    def label(self) -> str:
        image = f"{self.batch}x{self.in_channels}x{self.height}x{self.width}"
        return f"conv {image}->{self.out_channels} {self._options}"

    @property
    def structure(self) -> str:
        return f"conv {self._options}"

    @property
    def flops(self) -> int:
        """As for every problem: products with the padding's zeros are left out."""
        taps = len(self._read_rows) * len(self._read_columns)
        return 2 * self.batch * self.out_channels * (self.in_channels // self.groups) * taps

    @property
    def bytes_moved(self) -> int:
        """As for every problem, less the pixels that no window covers: strides may step over some."""
        pixels = self.height * self.width - len(set(self._read_rows)) * len(set(self._read_columns))
        return super().bytes_moved - self.batch * self.in_channels * pixels * self.dtype.size

    @property
    def _read_rows(self) -> list[int]:
        """The image row that each row of the filter meets at each output row, but for those in the padding."""
        return _read(self.height, self.out_height, self.kernel, self.stride, self.padding, self.dilation)

    @property
    def _read_columns(self) -> list[int]:
        return _read(self.width, self.out_width, self.kernel_w, self.stride_w, self.padding_w, self.dilation_w)


class Conv(Operation[ConvProblem]):
    """The family of 2D forward convolutions."""

    name = "conv"
    problem_type = ConvProblem

    def build_graph(self, problem: ConvProblem, graph: cudnn.pygraph) -> None:
        specs = {t.name: t for t in problem.tensors}
        result = graph.conv_fprop(
            image=add_input(graph, specs["x"]),
            weight=add_input(graph, specs["w"]),
            padding=[problem.padding, problem.padding_w],
            stride=[problem.stride, problem.stride_w],
            dilation=[problem.dilation, problem.dilation_w],
        )
        if problem.bias:
            result = graph.bias(result, add_input(graph, specs["bias"]))
        mark_output(add_activation(graph, result, problem.activation), specs["y"])

    def make_inputs(self, problem: ConvProblem, device: torch.device, seed: int) -> dict[str, torch.Tensor]:
        """X and bias are N(0, 1); W is N(0, 1/fan-in), so that the sums are N(0, 1) and activations meet their bend."""
        fan_in = problem.in_channels // problem.groups * problem.kernel * problem.kernel_w
        return normal_tensors(problem.inputs, device, seed, {"w": fan_in**-0.5})

    def reference(self, problem: ConvProblem, inputs: Tensors) -> dict[str, torch.Tensor]:
        """In float64 by torch's own kernels: unfolding and matrix products, not the library under test."""
        import torch

        wide = {name: tensor.double().contiguous() for name, tensor in inputs.items()}
        with torch.backends.cudnn.flags(enabled=False):
            return _convolve(problem, wide, problem.activation.function)

    def baselines(self, problem: ConvProblem) -> tuple[Baseline, ...]:
        """`eager` and `compile`, on tensors in the problem's layout: channels-last where a user calls for it."""
        activate = problem.activation.function

        def eager(inputs: Tensors) -> Tensors:
            return _convolve(problem, inputs, activate)

        return Baseline("eager", eager), Baseline("compile", compiled(eager), compiles=True)


def _read(size: int, outputs: int, kernel: int, stride: int, padding: int, dilation: int) -> list[int]:  # noqa: PLR0917
    """Positions along one axis that are read, each as often as it is."""
    places = (i * stride - padding + tap * dilation for i in range(outputs) for tap in range(kernel))
    return [place for place in places if 0 <= place < size]


def _convolve(problem: ConvProblem, inputs: Tensors, activate: Elementwise) -> dict[str, torch.Tensor]:
    from torch.nn import functional

    y = functional.conv2d(
        inputs["x"],
        inputs["w"],
        inputs["bias"].flatten() if problem.bias else None,
        stride=(problem.stride, problem.stride_w),
        padding=(problem.padding, problem.padding_w),
        dilation=(problem.dilation, problem.dilation_w),
        groups=problem.groups,
    )
    return {"y": activate(y)}
