"""Modules on other workers, with `torch.distributed.nn`'s names."""

from tensorplay.distributed.nn.remote_module import RemoteModule

__all__ = ["RemoteModule"]
