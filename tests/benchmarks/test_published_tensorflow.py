"""One rule of what TensorFlow keeps puts five networks at the same fill of a 16 GB card, and plain plans near it."""
from __future__ import annotations

import pytest

from benchmarks.published.kept import ROW, kept_bytes, plain_bytes

GIB = 2**30
DERIVED = {"VGG16": 14.50, "ResNet-50": 14.46, "ResNet-152": 14.42, "InceptionV3": 14.33, "InceptionV4": 14.44}
"""GiB by another derivation of the same rule, from the published definitions of the networks."""


@pytest.mark.parametrize("network", ROW)
def test_what_tensorflow_keeps_at_its_largest_batch_fills_the_card(network: str) -> None:
    kept = kept_bytes(ROW[network]) / GIB
    assert 14.3 <= kept <= 14.5
    assert kept == pytest.approx(DERIVED[network], abs=0.01)


@pytest.mark.parametrize("network", ROW)
def test_a_plain_plan_takes_no_more_than_tensorflow_kept_but_for_gradients_under_way(network: str) -> None:
    """It keeps two copies of each parameter, as gradients die in the step, and has the gradients of activations too.
    It takes less in the Inceptions: a normalisation with its activation reads its own input backward, so an activation
    that only a concatenation reads is not kept."""
    ratio = plain_bytes(ROW[network]) / kept_bytes(ROW[network])
    assert (0.8 if "Inception" in network else 0.97) <= ratio <= 1.02
