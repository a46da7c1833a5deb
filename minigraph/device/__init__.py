"""Devices: what loads a plan and runs it."""
