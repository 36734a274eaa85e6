"""Word of passes whose gradients go somewhere else than into `.grad`."""

from __future__ import annotations

_passes: list[str] = []


def gradients_go_elsewhere(advice: str) -> None:
    """A pass of that kind runs in this process; `advice` says how to get at its gradients."""
    if not _passes:
        _passes.append(advice)


def where_gradients_went() -> str | None:
    """The advice of the first such pass; None if there was none in this process."""
    return _passes[0] if _passes else None
