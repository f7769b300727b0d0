"""Element types, under the names that torch gives them."""

from enum import StrEnum


class DType(StrEnum):
    """An element type that a tensor of a problem may have."""

    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    FLOAT32 = "float32"

    @property
    def size(self) -> int:
        """Bytes of one element."""
        return {"float16": 2, "bfloat16": 2, "float32": 4}[self.value]

    @property
    def roundoff(self) -> float:
        """Unit roundoff u = 2^-p of the type's p-bit significand."""
        return {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24}[self.value]
