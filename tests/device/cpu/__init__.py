"""The CPU device."""
