"""What there is here, told under MXNet's names: operators, features, types."""
from __future__ import annotations

import numpy as np
import pytest

import minigraph as mx
from minigraph.base import MXNetError


def test_operators_are_listed_with_their_aliases():
    listed = mx.operator.get_all_registered_operators()
    assert {"Activation", "Convolution", "relu", "sum_axis", "_plus_scalar"} <= set(listed) and listed == sorted(listed)


def test_an_operators_inputs_and_parameters_are_told():
    arguments = mx.operator.get_operator_arguments("Activation")
    assert arguments.names == ["data", "act_type"] and arguments.narg == 2
    assert arguments.types[0] == "NDArray-or-Symbol"
    assert arguments.types[1] == "{'relu', 'sigmoid', 'softrelu', 'softsign', 'tanh'}, required"
    assert mx.operator.get_operator_arguments("clip").names == ["data", "a_min", "a_max"]
    concat = mx.operator.get_operator_arguments("concat")
    assert concat.types[0] == "NDArray-or-Symbol[]" and "int, optional, default=1" in concat.types
    with pytest.raises(MXNetError, match="'nothing'"):
        mx.operator.get_operator_arguments("nothing")


def test_features_tell_whether_there_is_a_gpu(monkeypatch):
    features = mx.runtime.Features()
    assert features.is_enabled("CUDA") == features["CUDA"].enabled == (mx.num_gpus() > 0)
    assert not features.is_enabled("MKLDNN") and features.is_enabled("INT64_TENSOR_SIZE")
    assert {f.name for f in mx.runtime.feature_list()} == set(features) and "✖ MKLDNN" in repr(features)
    monkeypatch.setattr(mx.runtime, "num_gpus", lambda: 1)
    assert mx.runtime.Features().is_enabled("cuda")
    with pytest.raises(RuntimeError, match="'NOTHING' is unknown, .*CUDA"):
        features.is_enabled("NOTHING")


def test_types_have_mxnets_names():
    assert mx.base.mx_real_t is np.float32
    assert isinstance(np.int64(1), mx.base.integer_types) and isinstance(np.float16(1), mx.base.numeric_types)
