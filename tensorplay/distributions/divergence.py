"""How far one distribution is from another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tensorplay.distributions.bernoulli import Bernoulli
from tensorplay.distributions.categorical import Categorical
from tensorplay.distributions.distribution import Distribution
from tensorplay.distributions.normal import Normal
from tensorplay.distributions.uniform import Uniform
from tensorplay.ops.activations import softplus
from tensorplay.ops.pointwise import log, square
from tensorplay.ops.selection import where
from tensorplay.tensor import Tensor, wrap

Rule = Callable[[Any, Any], Tensor]

_rules: dict[tuple[type, type], Rule] = {}


def register_kl(type_p: type[Distribution], type_q: type[Distribution]) -> Callable[[Rule], Rule]:
    """Say, as a decorator, which function of both gives the divergence of two kinds."""

    def register(rule: Rule) -> Rule:
        _rules[type_p, type_q] = rule
        return rule

    return register


def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """The Kullback-Leibler divergence of `p` from `q`, in nats.

    Raises:
        NotImplementedError: There is no rule for the two kinds.

    >>> kl_divergence(Normal(0.0, 1.0), Normal(1.0, 1.0))
    tensor(0.5000)
    """
    for kind_p in type(p).__mro__:
        for kind_q in type(q).__mro__:
            rule = _rules.get((kind_p, kind_q))
            if rule is not None:
                return rule(p, q)
    raise NotImplementedError(
        f"No KL(p || q) is implemented for p type {type(p).__name__} and q type {type(q).__name__}"
    )


@register_kl(Normal, Normal)
def _normals(p: Normal, q: Normal) -> Tensor:
    ratio = square(p.scale / q.scale)
    distance = square((p.loc - q.loc) / q.scale)
    result: Tensor = (ratio + distance - 1 - log(ratio)) * 0.5
    return result


@register_kl(Categorical, Categorical)
def _categoricals(p: Categorical, q: Categorical) -> Tensor:
    possible = wrap(p.probs._array > 0)
    terms = where(possible, p.probs * (p.logits - q.logits), 0.0)
    # What q never gives but p does is infinitely far.
    terms = where(wrap((q.probs._array == 0) & possible._array), np.inf, terms)
    result: Tensor = terms.sum(-1)
    return result


@register_kl(Bernoulli, Bernoulli)
def _bernoullis(p: Bernoulli, q: Bernoulli) -> Tensor:
    yes = p.probs * (softplus(-q.logits) - softplus(-p.logits))
    no = (1 - p.probs) * (softplus(q.logits) - softplus(p.logits))
    result: Tensor = yes + no
    return result


@register_kl(Uniform, Uniform)
def _uniforms(p: Uniform, q: Uniform) -> Tensor:
    outside = (q.low._array > p.low._array) | (q.high._array < p.high._array)
    result: Tensor = where(wrap(outside), np.inf, log((q.high - q.low) / (p.high - p.low)))
    return result
