"""Tests of minigraph; the folders mirror the package."""
