"""What programs ask before they choose a device: there are no GPUs here."""


def is_available() -> bool:
    """Whether tensors can live on a GPU: False.

    >>> import tensorplay as tp
    >>> tp.cuda.is_available()
    False
    """
    return False


def device_count() -> int:
    """How many GPUs tensors can live on: 0."""
    return 0
