"""Engines: cudnn and torch. Each is imported where it is asked for, since both take over a second to import."""

from importlib import import_module

from tunefarm.engines.engine import Engine
from tunefarm.model.errors import UsageError

ENGINE_NAMES = ("cudnn", "torch")


def make_engine(name: str, profile: str | None = None) -> Engine:
    """An engine for this process's current device.

    Args:
        name: one of `ENGINE_NAMES`; or `package.module:Class` for an engine from elsewhere (simulations, tests). Job
            files can name only the former, so that a job can't run code.
        profile: cuDNN's JSON of a device's properties: build for that device without having one. Its plans can't be
            loaded by this engine object. None builds with a handle on the current device.

    Raises:
        UsageError: no such engine.
        Declined: the engine can't work here, such as cuDNN without its library.
    """
    if name == "cudnn":
        from tunefarm.engines.cudnn import CudnnEngine

        return CudnnEngine(profile)
    if name == "torch":
        from tunefarm.engines.torch import TorchEngine

        return TorchEngine()
    if ":" in name:
        module, _, attribute = name.partition(":")
        engine: Engine = getattr(import_module(module), attribute)()
        return engine
    raise UsageError(f"no engine named {name!r}; there are {', '.join(ENGINE_NAMES)}")
