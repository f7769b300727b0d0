"""Matrix products: linear layers and batched products, with scale, bias, activation and amax fused on."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from tunefarm.model.dtypes import DType
from tunefarm.model.errors import InvalidProblem
from tunefarm.model.problem import Problem, Role, TensorSpec, option
from tunefarm.ops.activation import Activation, Elementwise
from tunefarm.ops.baselines import compiled
from tunefarm.ops.graphs import add_activation, add_input, mark_output
from tunefarm.ops.inputs import normal_tensors
from tunefarm.ops.layouts import packed_strides
from tunefarm.ops.operation import Baseline, Operation, Tensors

if TYPE_CHECKING:
    import cudnn
    import torch


@dataclass(frozen=True, kw_only=True)
class MatmulProblem(Problem):
    """C = activation(alpha * A @ B + bias), accumulated in float32.

    Tensors, always of rank 3 (uid, name):

    - 1 `a` [batch, m, k]
    - 2 `b` [batch, k, n]
    - 3 `alpha` [1, 1, 1] float32, a host scalar; only if alpha is not 1. Its value is given anew at each launch and is
      not part of a plan, but it is part of the problem's key, like every field
    - 4 `bias` [1, 1, n]; only with bias. Of the problem's dtype, like the parameter of a linear layer
    - 5 `c` [batch, m, n], row-major
    - 6 `amax` [1, 1, 1] float32; only with amax: the largest magnitude of C before it is rounded to dtype
    """

    op: ClassVar[str] = "matmul"

    batch: int = option("products that share one shape", default=1, low=1)
    m: int = option("rows of A and C: the tokens of a linear layer", low=1)
    n: int = option("columns of B and C: the output features of a linear layer", low=1)
    k: int = option("columns of A and rows of B: the input features of a linear layer", low=1)
    dtype: DType = option("element type of A, B, bias and C", default=DType.BFLOAT16)
    transpose_a: bool = option("A is stored as [k, m]", default=False)
    transpose_b: bool = option("B is stored as [n, k], as torch.nn.Linear keeps its weight", default=False)
    alpha: float = option("factor of the product; passed at each launch if it is not 1", default=1.0)
    bias: bool = option("add a vector of length n to each row", default=False)
    activation: Activation = option("function of each element", default=Activation.NONE)
    amax: bool = option("also return the largest magnitude of C before rounding", default=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "alpha", float(self.alpha))  # 2 and 2.0 are equal, so they must have one key
        super().__post_init__()

    def check(self) -> None:
        if not math.isfinite(self.alpha) or self.alpha == 0:
            raise InvalidProblem("alpha", f"{self.alpha} leaves nothing of the product; give a finite factor")

    @property
    def scaled(self) -> bool:
        """Whether alpha is passed at each launch."""
        return self.alpha != 1

    @property
    def tensors(self) -> tuple[TensorSpec, ...]:
        batch, m, n, k = self.batch, self.m, self.n, self.k

        def spec(uid: int, name: str, role: Role, *shape: int, transposed: bool = False) -> TensorSpec:
            strides = packed_strides(shape, (0, 2, 1) if transposed else (0, 1, 2))
            return TensorSpec(uid, name, role, shape, strides, self.dtype)

        a = spec(1, "a", Role.INPUT, batch, m, k, transposed=self.transpose_a)
        b = spec(2, "b", Role.INPUT, batch, k, n, transposed=self.transpose_b)
        alpha = TensorSpec(3, "alpha", Role.SCALAR, (1, 1, 1), (1, 1, 1), DType.FLOAT32)
        bias = spec(4, "bias", Role.INPUT, 1, 1, n)
        c = spec(5, "c", Role.OUTPUT, batch, m, n)
        amax = TensorSpec(6, "amax", Role.OUTPUT, (1, 1, 1), (1, 1, 1), DType.FLOAT32)
        return (a, b, *[alpha] * self.scaled, *[bias] * self.bias, c, *[amax] * self.amax)

    @property
    def _options(self) -> str:
        words = {
            "ta": self.transpose_a,
            "tb": self.transpose_b,
            "alpha": self.scaled,
            "bias": self.bias,
            str(self.activation): self.activation is not Activation.NONE,
            "amax": self.amax,
        }
        return " ".join([self.dtype, *(word for word, said in words.items() if said)])

    @property
    def label(self) -> str:
        return f"matmul {self.batch}x{self.m}x{self.n}x{self.k} {self._options}"

    @property
    def structure(self) -> str:
        return f"matmul {self._options}"

    @property
    def flops(self) -> int:
        return 2 * self.batch * self.m * self.n * self.k


class Matmul(Operation[MatmulProblem]):
    """The family of matrix products."""

    name = "matmul"
    problem_type = MatmulProblem

    def build_graph(self, problem: MatmulProblem, graph: cudnn.pygraph) -> None:
        specs = {t.name: t for t in problem.tensors}
        product = graph.matmul(add_input(graph, specs["a"]), add_input(graph, specs["b"]))
        if problem.scaled:
            product = graph.mul(product, add_input(graph, specs["alpha"]))
        if problem.bias:
            product = graph.bias(product, add_input(graph, specs["bias"]))
        result = add_activation(graph, product, problem.activation)
        if problem.amax:
            import cudnn

            mark_output(graph.reduction(result, mode=cudnn.reduction_mode.AMAX), specs["amax"])
            # C gets a node of its own, so that what the reduction reads stays a float32 intermediate. If it read C,
            # nothing would say whether it is to see rounded values.
            result = graph.identity(result)
        mark_output(result, specs["c"])

    def make_inputs(self, problem: MatmulProblem, device: torch.device, seed: int) -> dict[str, torch.Tensor]:
        """A and bias are N(0, 1); B is N(0, 1/k), so that the product is N(0, 1) and activations meet their bend."""
        import torch

        on_device = [t for t in problem.inputs if t.role is Role.INPUT]
        inputs = normal_tensors(on_device, device, seed, {"b": problem.k**-0.5})
        if problem.scaled:
            inputs["alpha"] = torch.full((1, 1, 1), problem.alpha, dtype=torch.float32)
        return inputs

    def reference(self, problem: MatmulProblem, inputs: Tensors) -> dict[str, torch.Tensor]:
        """In float64 throughout, whatever the size: by data sheet, 1e12 operations take 0.02 s on an H200."""
        import torch

        c = torch.bmm(inputs["a"].double(), inputs["b"].double())
        if problem.scaled:
            c *= inputs["alpha"].item()
        if problem.bias:
            c += inputs["bias"].double()
        c = problem.activation.function(c)
        outputs = {"c": c}
        if problem.amax:
            outputs["amax"] = torch.linalg.vector_norm(c, ord=math.inf).reshape(1, 1, 1)
        return outputs

    def baselines(self, problem: MatmulProblem) -> tuple[Baseline, ...]:
        """`eager` and `compile`. They take alpha from the problem: a torch user writes it as a Python number."""
        activate = problem.activation.function
        product = _product_with_amax if problem.amax else _product

        def eager(inputs: Tensors) -> Tensors:
            return product(problem, inputs, activate)

        return Baseline("eager", eager), Baseline("compile", compiled(eager), compiles=True)


def _product(problem: MatmulProblem, inputs: Tensors, activate: Elementwise) -> Mapping[str, torch.Tensor]:
    """F.linear for what is a linear layer, torch's other products for the rest."""
    import torch

    a, b, bias, alpha = inputs["a"], inputs["b"], inputs.get("bias"), problem.alpha
    if problem.batch > 1:
        if bias is not None:
            c = torch.baddbmm(bias, a, b, alpha=alpha)
        else:
            c = torch.bmm(a, b) * alpha if problem.scaled else torch.bmm(a, b)
        return {"c": activate(c)}
    a, b = a[0], b[0]
    if problem.transpose_b and not problem.scaled:
        c = torch.nn.functional.linear(a, b.t(), None if bias is None else bias[0, 0])
    elif bias is not None:
        c = torch.addmm(bias[0, 0], a, b, alpha=alpha)
    else:
        c = torch.mm(a, b) * alpha if problem.scaled else torch.mm(a, b)
    return {"c": activate(c)[None]}


def _product_with_amax(problem: MatmulProblem, inputs: Tensors, activate: Elementwise) -> Mapping[str, torch.Tensor]:
    """Amax is of the values before rounding, so the product comes out in float32.

    On CUDA that costs wider stores, not slower products. torch's CPU products have no `out_dtype`: operands are cast.
    """
    import torch

    a, b = inputs["a"], inputs["b"]
    if problem.dtype is DType.FLOAT32 or not a.is_cuda:
        c = torch.bmm(a.float(), b.float())
    else:
        c = torch.bmm(a, b, out_dtype=torch.float32)
    if problem.scaled:
        c = c * problem.alpha
    if problem.bias:
        c = c + inputs["bias"]
    c = activate(c)
    return {"c": c.to(a.dtype), "amax": c.abs().amax().reshape(1, 1, 1)}
