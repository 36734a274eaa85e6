"""Probability distributions: to draw from, and to differentiate through.

>>> import tensorplay as tp
>>> normal = tp.distributions.Normal(0.0, 1.0)
>>> normal.log_prob(tp.tensor(0.0))
tensor(-0.9189)
"""

from tensorplay.distributions.bernoulli import Bernoulli
from tensorplay.distributions.categorical import Categorical
from tensorplay.distributions.distribution import Distribution
from tensorplay.distributions.divergence import kl_divergence, register_kl
from tensorplay.distributions.normal import Normal
from tensorplay.distributions.uniform import Uniform

__all__ = [
    "Bernoulli",
    "Categorical",
    "Distribution",
    "Normal",
    "Uniform",
    "kl_divergence",
    "register_kl",
]
