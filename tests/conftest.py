"""Loaded by every run of pytest in this folder; the rules of worlds stand in harness/world.py."""

pytest_plugins = ["harness.world"]
