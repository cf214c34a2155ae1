"""Kernels of the packet engine."""
