"""Tools around training."""
