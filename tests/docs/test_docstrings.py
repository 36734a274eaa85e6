"""Docstrings of what programs use: each name has one, and what it shows is so."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from typing import Any

import pytest

from harness.pages import failures_of
from tensorplay import distributed, futures
from tensorplay.distributed import autograd, rpc


def modules() -> list[str]:
    found = pkgutil.walk_packages(distributed.__path__, "tensorplay.distributed.")
    return ["tensorplay.futures", "tensorplay.distributed", *(info.name for info in found)]


@pytest.mark.parametrize("name", modules())
def test_examples_are_true(name: str) -> None:
    """They are typed on the first of two workers."""
    found = doctest.DocTestFinder(exclude_empty=True).find(importlib.import_module(name))
    examples = [example for example in found if example.examples]
    if examples:
        assert not failures_of(examples, 2)


def public() -> Iterator[tuple[str, Any]]:
    """All public names of the packages, and the methods of classes that programs make."""
    for package in (rpc, autograd, futures):
        for name in package.__all__:
            yield name, getattr(package, name)
    yield "functions.async_execution", rpc.functions.async_execution
    for name in ("_all_gather", "_barrier", "_wait_all", "_wait_all_workers", "_set_rpc_timeout"):
        yield name, getattr(rpc.api, name)
    for kind in (
        rpc.RRef,
        rpc.Future,
        rpc.MPIRpcBackendOptions,
        rpc.TensorPipeRpcBackendOptions,
        autograd.ContextGraph,
        autograd.GraphNode,
        autograd.MessagePair,
    ):
        for name, member in vars(kind).items():
            if not name.startswith("_") and (callable(member) or isinstance(member, property)):
                yield f"{kind.__name__}.{name}", member


def own_docstring(thing: Any) -> str:
    # Not one that a class inherits.
    return (thing.__doc__ if inspect.isclass(thing) else inspect.getdoc(thing)) or ""


def test_all_have_docstrings() -> None:
    """Of some words, and not what dataclasses make by themselves."""
    missing = [
        name
        for name, thing in public()
        if len(own_docstring(thing).split()) < 4 or own_docstring(thing).startswith(f"{name}(")
    ]
    assert not missing


def test_functions_say_who_must_call_them() -> None:
    """Methods are as local as the classes that say so; `new_method` has the text of one."""
    missing = [
        name
        for name, thing in public()
        if inspect.isfunction(thing) and "." not in name and name != "new_method"
        if not re.search(r"\b[Ll]ocal\b|\b[Cc]ollective\b", own_docstring(thing))
    ]
    assert not missing


MAIN = """
    init_rpc shutdown rpc_sync rpc_async remote get_worker_info get_world_size get_rpc_timeout
    statistics RRef Future WorkerInfo MPIRpcBackendOptions TensorPipeRpcBackendOptions BackendType
    RemoteError RemoteTraceback
"""

MAIN_OF_AUTOGRAD = """
    context backward get_gradients get_graph is_available is_initialized statistics
    DistAutogradContext ContextGraph _new_context _get_max_id _get_debug_info
"""


def test_main_names_have_an_example() -> None:
    texts = {name: own_docstring(getattr(rpc, name)) for name in MAIN.split()}
    texts |= {name: own_docstring(getattr(autograd, name)) for name in MAIN_OF_AUTOGRAD.split()}
    assert not [name for name, text in texts.items() if ">>> " not in text and "::\n" not in text]


def test_functions_of_autograd_name_their_arguments_and_errors() -> None:
    """Each argument in the text; and what is raised, unless nothing can be."""
    for name in autograd.__all__:
        thing = getattr(autograd, name)
        if not inspect.isfunction(thing):
            continue
        text = own_docstring(thing)
        missing = [
            argument
            for argument in inspect.signature(thing).parameters
            if not re.search(rf"^ *{argument}: ", text, re.M)
        ]
        assert not missing, name
        assert "Raises:" in text or name in ("is_available", "is_initialized"), name
