"""The software CUDA driver and its tests; README.md says what it is."""
