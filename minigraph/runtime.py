"""What can be used here, by MXNet's names of features."""
from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from .context import num_gpus

_ABSENT = ("BLAS_APPLE", "BLAS_ATLAS", "BLAS_MKL", "CAFFE", "CUDNN", "DEBUG", "DIST_KVSTORE", "JEMALLOC", "LAPACK",
           "MKLDNN", "NCCL", "OPENCV", "OPENMP", "SIGNAL_HANDLER", "TENSORRT", "TVM_OP")
"""Features of MXNet that nothing here has."""


@dataclass(frozen=True)
class Feature:
    """A feature's name, and whether it can be used."""

    name: str
    enabled: bool

    def __repr__(self) -> str:
        return f"{'✔' if self.enabled else '✖'} {self.name}"


class Features(Mapping):
    """All features by name: `Features().is_enabled("CUDA")` tells whether there is a GPU to run on."""

    def __init__(self) -> None:
        gpu = num_gpus() > 0
        present = {"CUDA": gpu, "CUDA_RTC": gpu, "INT64_TENSOR_SIZE": True, "PROFILER": True}
        self._features = {name: Feature(name, enabled)
                          for name, enabled in {**present, **dict.fromkeys(_ABSENT, False)}.items()}

    def __getitem__(self, name: str) -> Feature:
        return self._features[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._features)

    def __len__(self) -> int:
        return len(self._features)

    def __repr__(self) -> str:
        return str(list(self._features.values()))

    def is_enabled(self, feature_name: str) -> bool:
        """Whether a feature can be used; RuntimeError for a name that is none."""
        feature = self._features.get(feature_name.upper())
        if feature is None:
            raise RuntimeError(f"Feature '{feature_name}' is unknown, known features are: {', '.join(self)}")
        return feature.enabled


def feature_list() -> list[Feature]:
    """All features."""
    return list(Features().values())
