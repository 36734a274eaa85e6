"""PyTorch's backend that loses messages on purpose, for its own tests, is not there."""


def is_available() -> bool:
    """Whether there is such a backend: no.

    >>> is_available()
    False
    """
    return False
