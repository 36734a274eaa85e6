"""Data sets, the order in which they are gone through, and batches.

>>> import tensorplay as tp
>>> from tensorplay.utils.data import DataLoader, TensorDataset
>>> pairs = TensorDataset(tp.arange(4), tp.arange(4) * 10)
>>> for x, y in DataLoader(pairs, batch_size=2):
...     print(x, y)
tensor([0, 1]) tensor([ 0, 10])
tensor([2, 3]) tensor([20, 30])
"""

from tensorplay.utils.data.collate import default_collate
from tensorplay.utils.data.dataset import (
    ConcatDataset,
    Dataset,
    IterableDataset,
    Subset,
    TensorDataset,
    random_split,
)
from tensorplay.utils.data.distributed import DistributedSampler
from tensorplay.utils.data.loader import DataLoader
from tensorplay.utils.data.sampler import (
    BatchSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

__all__ = [
    "BatchSampler",
    "ConcatDataset",
    "DataLoader",
    "Dataset",
    "DistributedSampler",
    "IterableDataset",
    "RandomSampler",
    "Sampler",
    "SequentialSampler",
    "Subset",
    "SubsetRandomSampler",
    "TensorDataset",
    "WeightedRandomSampler",
    "default_collate",
    "random_split",
]
