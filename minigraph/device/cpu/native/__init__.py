"""The CPU's own kernels: a library of C++ for each instruction-set level, and how each op packs its calls into it."""
