"""Registers the built-in environments with Gymnasium; importing this module does it."""

from superdex.envs import register_envs

__all__ = ["register_envs"]
