"""Tools around training."""

from tensorplay.utils import data

__all__ = ["data"]
