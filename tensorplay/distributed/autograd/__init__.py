"""Distributed automatic differentiation, with `torch.distributed.autograd`'s names."""

from tensorplay.distributed.autograd.api import (
    backward,
    context,
    get_gradients,
    is_available,
    is_initialized,
    statistics,
)
from tensorplay.distributed.autograd.by_hand import (
    _current_context,
    _get_debug_info,
    _get_max_id,
    _init,
    _is_valid_context,
    _new_context,
    _release_context,
    _retrieve_context,
)
from tensorplay.distributed.autograd.context import DistAutogradContext
from tensorplay.distributed.autograd.context_graph import ContextGraph, GraphNode, MessagePair
from tensorplay.distributed.autograd.graph_gathering import get_graph

__all__ = [
    "ContextGraph",
    "DistAutogradContext",
    "GraphNode",
    "MessagePair",
    "_current_context",
    "_get_debug_info",
    "_get_max_id",
    "_init",
    "_is_valid_context",
    "_new_context",
    "_release_context",
    "_retrieve_context",
    "backward",
    "context",
    "get_gradients",
    "get_graph",
    "is_available",
    "is_initialized",
    "statistics",
]
