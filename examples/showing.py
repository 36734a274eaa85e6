"""How the examples show what they do: a bar or lines of progress, and pictures."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any


class Progress:
    """Progress of a long run: a bar on a terminal if tqdm is installed, else about ten lines.

    For one rank to show, the first.

    Args:
        total: How many steps there will be.
        unit: What a step is called.
        style: ``"bar"`` or ``"lines"``; ``"auto"`` is a bar if stderr is a terminal, which
            launchers may hide from their ranks.
    """

    #: What a command line may choose from.
    STYLES = ("auto", "bar", "lines")

    def __init__(self, total: int, unit: str, style: str = "auto") -> None:
        self.total, self.unit, self.done = total, unit, 0
        self._bar: Any = None
        if style == "bar" or (style == "auto" and sys.stderr.isatty()):
            try:
                from tqdm import tqdm
            except ImportError:
                return
            self._bar = tqdm(total=total, unit=unit, ncols=100)

    def advance_to(self, done: int, **values: str) -> None:
        """So many steps are done; `values` are shown beside them."""
        before, self.done = self.done, done
        if self._bar is not None:
            self._bar.set_postfix(values, refresh=False)
            self._bar.update(done - before)
        elif done * 10 // self.total > before * 10 // self.total:
            said = "  ".join(f"{name} {value}" for name, value in values.items())
            print(f"{self.unit} {done:5d}  {said}", flush=True)

    def close(self) -> None:
        """The run has ended, perhaps early."""
        if self._bar is not None:
            self._bar.close()


def pyplot() -> Any:
    """The module pyplot of matplotlib, drawing into files; None if it is not installed."""
    try:
        import matplotlib
    except ImportError:
        return None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def save(plot: Any, figure: Any, path: Path) -> None:
    """Write a figure of `pyplot` to a file, and say so."""
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plot.close(figure)
    print(f"\npicture: {path}")
