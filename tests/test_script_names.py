"""The names, methods and keywords that MXNet's image-classification scripts use exist."""
from __future__ import annotations

import inspect

import pytest

import minigraph as mx

NAMES = """
kvstore.create cpu gpu Context sym.Variable sym.identity sym.Cast sym.BatchNorm sym.Activation sym.Convolution
sym.Pooling sym.Flatten sym.FullyConnected sym.SoftmaxOutput sym.Concat sym.Dropout sym.LRN sym.SpatialTransformer
symbol.Variable symbol.SoftmaxOutput sym.Group sym.load sym.load_json io.NDArrayIter io.ImageRecordIter io.DataIter
io.DataBatch io.DataDesc io.ResizeIter io.MNISTIter io.PrefetchingIter io.CSVIter mod.Module mod.BucketingModule
init.Xavier init.Normal init.MSRAPrelu init.Orthogonal init.Uniform init.One init.Zero init.Constant init.Mixed
init.Load lr_scheduler.FactorScheduler lr_scheduler.MultiFactorScheduler lr_scheduler.PolyScheduler
lr_scheduler.CosineScheduler metric.create metric.np callback.Speedometer callback.do_checkpoint
callback.module_checkpoint mon.Monitor Monitor model.load_checkpoint model.save_checkpoint model.FeedForward
nd.array nd.zeros nd.ones nd.save nd.load random.seed
profiler.set_config profiler.set_state profiler.dump recordio.MXRecordIO recordio.MXIndexedRecordIO recordio.IRHeader
recordio.pack recordio.unpack recordio.pack_img recordio.unpack_img name.Prefix name.NameManager AttrScope
viz.print_summary
""".split()
METHODS = {
    "sym.Symbol": "tojson save list_arguments list_outputs list_auxiliary_states get_internals infer_shape infer_type "
                  "simple_bind bind _set_attr attr attr_dict list_attr",
    "mod.Module": "fit score predict iter_predict bind init_params init_optimizer forward backward update "
                  "forward_backward get_outputs get_input_grads update_metric get_params set_params save_params "
                  "load_params save_checkpoint load install_monitor borrow_optimizer reshape prepare",
    "mod.BucketingModule": "fit score predict bind switch_bucket save_checkpoint load load_dict install_monitor",
    "model.FeedForward": "create fit predict score save load",
    "nd.NDArray": "wait_to_read asnumpy asscalar astype copy copyto as_in_context reshape",
    "io.ImageRecordIter": "reset next iter_next getdata getlabel getindex getpad provide_data provide_label",
    "mon.Monitor": "install tic toc toc_print"}
FIT_KEYWORDS = ("begin_epoch num_epoch eval_data eval_metric kvstore optimizer optimizer_params initializer arg_params "
                "aux_params batch_end_callback epoch_end_callback allow_missing monitor").split()


def found(dotted):
    value = mx
    for part in dotted.split("."):
        value = getattr(value, part)
    return value


@pytest.mark.parametrize("dotted", NAMES)
def test_a_name_that_the_scripts_use_exists(dotted):
    assert callable(found(dotted))


@pytest.mark.parametrize(("dotted", "methods"), METHODS.items(), ids=METHODS)
def test_the_methods_that_the_scripts_call_exist(dotted, methods):
    assert [name for name in methods.split() if not hasattr(found(dotted), name)] == []


def test_fit_takes_every_keyword_of_the_scripts():
    assert set(FIT_KEYWORDS) <= set(inspect.signature(mx.mod.Module.fit).parameters)


@pytest.mark.parametrize("name, value", [("accuracy", "accuracy"), ("ce", "cross-entropy"), ("nll-loss", "nll-loss"),
                                         ("nll_loss", "nll-loss")])
def test_the_metrics_of_the_scripts_are_known_by_name(name, value):
    assert mx.metric.create(name).name == value
