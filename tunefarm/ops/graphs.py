"""Tensors and activations of a cuDNN graph, as the operations describe them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tunefarm.model.dtypes import DType
from tunefarm.model.problem import Role, TensorSpec
from tunefarm.ops.activation import Activation

if TYPE_CHECKING:
    import cudnn


def add_input(graph: cudnn.pygraph, spec: TensorSpec) -> Any:
    """An input, or a host scalar that is passed by value at each launch."""
    return graph.tensor(
        dim=list(spec.shape),
        stride=list(spec.strides),
        data_type=_data_type(spec.dtype),
        is_pass_by_value=spec.role is Role.SCALAR,
        name=spec.name,
        uid=spec.uid,
    )


def mark_output(tensor: Any, spec: TensorSpec) -> None:
    """Make the result of a node an output of the graph.

    Shape and strides are always both given: what cuDNN infers for an attention's output is a row-major layout, and for
    a reduction's no reduction at all.
    """
    tensor.set_uid(spec.uid).set_name(spec.name).set_output(True)
    tensor.set_dim(list(spec.shape)).set_stride(list(spec.strides)).set_data_type(_data_type(spec.dtype))


def add_activation(graph: cudnn.pygraph, tensor: Any, activation: Activation) -> Any:
    """The tensor after the activation: cuDNN's erf-based `gelu`, and `swish` with beta 1."""
    match activation:
        case Activation.NONE:
            return tensor
        case Activation.RELU:
            return graph.relu(tensor)
        case Activation.GELU:
            return graph.gelu(tensor)
        case Activation.SWISH:
            return graph.swish(tensor)


def _data_type(dtype: DType) -> Any:
    import cudnn

    return {
        DType.FLOAT16: cudnn.data_type.HALF,
        DType.BFLOAT16: cudnn.data_type.BFLOAT16,
        DType.FLOAT32: cudnn.data_type.FLOAT,
    }[dtype]
