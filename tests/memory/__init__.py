"""Tests of schedules, packing and machines."""
