"""No argument is accepted and ignored: each is read by the body of its function, and matters or is refused by name.

The source is walked for arguments that no body reads, for those that are only kept in an attribute which nothing reads,
and for parameters of operators that no code of the operator looks at. What implements a protocol, or means nothing by
its nature, is listed with the reason; of functions the lists are exact, so an entry that is not needed any more fails
as well. Then arguments that were ignored once, or matter in part, are given values that must show.
"""
from __future__ import annotations

import ast
import dataclasses
import inspect
import logging
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minigraph as mx
from minigraph.base import MXNetError
from minigraph.ops import get_op, names

PACKAGE = Path(mx.__file__).parent
INSIDE = ("ops", "device", "passes", "memory", "graph", "plan", "zoo")
"""Folders of implementations: their functions are protocols of each other, and no user calls them."""

CALLBACK = "called by fit with what every callback is given"
INITIALIZER = "MXNet's protocol of initializers gives the name to each"
BY_INDEX = "MXNet's protocol of optimizers gives the parameter's index"
HOOK = "a hook, which subclasses override and some do without"
PYTHON = "Python's own protocol"
NO_PARAMETERS = "such a module stands in a chain with others, and has no parameters itself"
OLDER = "the protocol of operators in Python; the interface before CustomOp has no such thing"
AT_ONCE = "in what order a network sends; here all is done at once, with dense arrays"
UNREAD = {
    "array_checks.py assert_almost_equal_with_err": (("mismatches",), "how many elements MXNet prints; one error, the "
                                                     "worst element's, says what is wrong here"),
    "callback.py module_checkpoint.save": (("symbol", "arg_params", "aux_params"), CALLBACK),
    "context.py Context.__exit__": (("kind", "error", "trace"), PYTHON),
    "custom_op.py PythonOp.backward": (("out_grad", "in_data", "out_data"), HOOK),
    "custom_op.py _FromObject.create": (("shapes", "dtypes"), OLDER),
    "custom_op.py _FromObject.forward": (("is_train", "states"), OLDER),
    "custom_op.py _FromObject.backward": (("wanted", "states"), OLDER),
    "custom_op.py _Lending.__exit__": (("exception",), PYTHON),
    "ndarray/dlpack.py _Capsule.__dlpack__": (("how",), "the array interface's own call; a capsule is of one kind"),
    "initializer.py Initializer._init_zero": (("name",), INITIALIZER),
    "initializer.py Initializer._init_one": (("name",), INITIALIZER),
    "initializer.py Initializer._init_bias": (("name",), INITIALIZER),
    "initializer.py Zero._init_weight": (("name",), INITIALIZER),
    "initializer.py One._init_weight": (("name",), INITIALIZER),
    "initializer.py Constant._init_weight": (("name",), INITIALIZER),
    "initializer.py Uniform._init_weight": (("name",), INITIALIZER),
    "initializer.py Normal._init_weight": (("name",), INITIALIZER),
    "initializer.py Orthogonal._init_weight": (("name",), INITIALIZER),
    "initializer.py LSTMBias._init_weight": (("name",), INITIALIZER),
    "io.py ScaledIter.convert_data": (("dtype",), "divided rows are float32 whatever they are stored as"),
    "io_base.py _ToDefine.__set_name__": (("owner",), PYTHON),
    "kvstore.py KVStore.push": (("priority",), AT_ONCE),
    "kvstore.py KVStore.pull": (("priority", "ignore_sparse"), AT_ONCE),
    "lr_scheduler.py LRScheduler.scheduled_lr": (("num_update",), HOOK),
    "module_base.py BaseModule.prepare": (("data_batch",), HOOK),
    "optimizer.py Test.create_state": (("index",), BY_INDEX),
    "optimizer.py Test.update": (("index",), BY_INDEX),
    "optimizer_base.py Optimizer.rule_of": (("name",), HOOK),
    "optimizer_base.py Optimizer._step_sizes": (("counts",), HOOK),
    "optimizer_base.py Optimizer.create_state": (("index",), BY_INDEX),
    "optimizer_large_batch.py LBSGD.create_state": (("index",), BY_INDEX),
    "optimizer_large_batch.py LBSGD._step_sizes": (("counts",), HOOK),
    "optimizer_more.py SGLD.add_update": (("states",), "the protocol of updates; this one has no states"),
    "optimizer_more.py SGLD.update": (("state",), "the protocol of updates; this one has no states"),
    "python_module.py PythonModule.bind": (("shared_module",), "it has no memory that another module could lend"),
    "python_module.py PythonModule.init_params": (
        ("initializer", "arg_params", "aux_params", "allow_missing", "force_init", "allow_extra"), NO_PARAMETERS),
    "python_module.py PythonModule.init_optimizer": (
        ("kvstore", "optimizer", "optimizer_params", "force_init"), NO_PARAMETERS),
    "recordio.py MXRecordIO.__exit__": (("exception",), PYTHON),
    "symbol/attribute.py AttrScope.__exit__": (("kind", "error", "trace"), PYTHON),
    "symbol/naming.py NameManager.__exit__": (("kind", "error", "trace"), PYTHON),
    "symbol/symbol.py Symbol.__deepcopy__": (("memo",), PYTHON),
    "symbol/symbol.py Symbol.tojson": (("remove_amp_cast",), "no symbol has casts of AMP, so they are removed always"),
    "test_utils.py rand_ndarray": (("density",), "of sparse arrays, which `stype` refuses; dense ones have none"),
}

DENSE = "parameters and gradients are dense, whose lazy and standard updates are the same"
UNREAD_ATTRIBUTES = {
    "optimizer.py SGD.lazy_update": DENSE,
    "optimizer.py Adam.lazy_update": DENSE,
    "optimizer_large_batch.py LARS.lazy_update": DENSE,
    "optimizer_large_batch.py LBSGD.num_epochs": "told to whoever asks, as in MXNet, where no rule reads it either",
}

PLACE = "ctx"
"""The parameter that says where values lie: a graph lies on one device, and they are the same anywhere."""
ONE_CHOICE = "has one value, and any other is refused"
UNREAD_PARAMETERS = {
    ("Embedding", "sparse_grad"): "the gradient has the same values, dense",
    ("Pooling", "p_value"): "of Lp pooling, which pool_type refuses; other pooling has no exponent",
    ("_pooling_backward", "p_value"): "as of Pooling",
    ("_pooling_by_winners", "p_value"): "as of Pooling",
    ("_pooling_winners", "p_value"): "as of Pooling",
    ("_pooling_with_winners", "p_value"): "as of Pooling",
    ("RNN", "projection_size"): "refused by name",
    ("RNN", "lstm_state_clip_min"): "refused by name",
    ("RNN", "lstm_state_clip_max"): "refused by name",
    ("RNN", "lstm_state_clip_nan"): "of no effect without bounds of clipping, which are refused",
    ("SpatialTransformer", "sampler_type"): ONE_CHOICE,
    ("_arange", "infer_range"): ONE_CHOICE,
    ("_contrib_SyncBatchNorm", "key"): "names the devices' common statistics; a graph lies on one device",
    ("_contrib_gradientmultiplier", "is_int"): "how MXNet's file wrote the number; it is the same number",
}


# -- the source ----------------------------------------------------------------------------------------------
@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def functions(node: ast.AST, outer: str = "") -> Iterator[tuple[str, ast.FunctionDef]]:
    """All functions below a node by their names within the module."""
    for child in ast.iter_child_nodes(node):
        name = f"{outer}.{child.name}".lstrip(".") if isinstance(child, (ast.FunctionDef, ast.ClassDef)) else outer
        if isinstance(child, ast.FunctionDef):
            yield name, child
        yield from functions(child, name)


def arguments(function: ast.FunctionDef) -> list[str]:
    given = function.args
    extra = [each for each in (given.vararg, given.kwarg) if each is not None]
    return [each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs, *extra)
            if each.arg not in ("self", "cls", "_")]


def is_abstract(body: list[ast.stmt]) -> bool:
    """Whether a body only raises, or does nothing at all: a protocol's method, or a refusal of the whole call."""
    return all(isinstance(each, (ast.Pass, ast.Raise)) or isinstance(each, ast.Expr)
               and isinstance(each.value, ast.Constant) for each in body)


def loaded(nodes: Any) -> set[str]:
    return {each.id for node in nodes for each in ast.walk(node)
            if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load)}


def unread_arguments(module: ast.Module) -> dict[str, tuple[str, ...]]:
    """Arguments that no statement reads, by function. One that hands all its locals on reads them all."""
    found = {}
    for name, function in functions(module):
        read = loaded(function.body)
        unread = tuple(each for each in arguments(function) if each not in read)
        if unread and not is_abstract(function.body) and "locals" not in read:
            found[name] = unread
    return found


def sources() -> list[Path]:
    return [path for path in sorted(PACKAGE.rglob("*.py")) if path.relative_to(PACKAGE).parts[0] not in INSIDE]


def test_every_argument_is_read() -> None:
    found = {f"{path.relative_to(PACKAGE)} {name}": unread for path in sources()
             for name, unread in unread_arguments(tree(path)).items()}
    assert found == {name: unread for name, (unread, _) in UNREAD.items()}


def test_every_argument_that_is_kept_is_read_somewhere() -> None:
    """An attribute that is given an argument, and that no code anywhere reads, keeps it for nothing."""
    read = {each.attr for path in PACKAGE.rglob("*.py") for each in ast.walk(tree(path))
            if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Load)}
    found = set()
    for path in sources():
        for name, function in functions(tree(path)):
            given = set(arguments(function))
            for node in ast.walk(function):
                if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value and loaded([node.value]) & given:
                    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                    kept = {each.attr for target in targets for each in ast.walk(target)
                            if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store)}
                    found |= {f"{path.relative_to(PACKAGE)} {name.split('.')[0]}.{each}" for each in kept - read
                              if not each.startswith("__")}
    assert found == set(UNREAD_ATTRIBUTES)


def test_every_parameter_of_an_operator_is_read() -> None:
    """By the modules of the operator's class and of its parameters, bases included."""
    def read_by(node: ast.AST) -> str:
        """The attribute that an expression reads, by a dot or by `getattr`."""
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "getattr":
            return str(getattr(node.args[1], "value", ""))
        return node.attr if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) else ""

    @cache
    def read_in(path: str) -> frozenset[str]:
        return frozenset(found for each in ast.walk(tree(Path(path))) if (found := read_by(each)))

    found = set()
    for name in names():
        op = get_op(name)
        classes = [each for each in (*type(op).__mro__, *op.Params.__mro__)
                   if each.__module__.startswith("minigraph")]
        read = frozenset().union(*(read_in(str(inspect.getsourcefile(each))) for each in classes))
        found |= {(op.name, field.name) for field in dataclasses.fields(op.Params)
                  if field.name not in read and field.name != PLACE}
    assert not found - set(UNREAD_PARAMETERS)  # another operator of the module may read a name that one does not


def test_the_walk_sees_what_is_ignored() -> None:
    module = ast.parse('''
class A:
    def f(self, read, unread, *, deleted=1, **rest):
        """Text that names unread."""
        del deleted
        unread = read
        return unread

    def g(self, x):
        raise NotImplementedError

def h(a, b):
    return lambda b: a
''')
    assert unread_arguments(module) == {"A.f": ("deleted", "rest"), "h": ("b",)}


def test_a_parameter_of_one_value_has_no_other() -> None:
    for (name, parameter), reason in UNREAD_PARAMETERS.items():
        if reason == ONE_CHOICE:
            field = next(each for each in dataclasses.fields(get_op(name).Params) if each.name == parameter)
            assert len(field.metadata["choices"]) == 1, (name, parameter)


# -- values that must show -----------------------------------------------------------------------------------
def net() -> mx.sym.Symbol:
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=3, name="fc"),
                                name="softmax")


BATCH = mx.io.DataBatch([mx.nd.array(np.arange(8).reshape(2, 4))], [mx.nd.array([0, 2])])


def ready(made: Any) -> Any:
    made.bind([("data", (2, 4))], [("softmax_label", (2,))], inputs_need_grad=True)
    made.init_params(mx.init.Uniform(1))
    made.init_optimizer()
    made.forward_backward(BATCH)
    return made


def module() -> mx.mod.Module:
    return ready(mx.mod.Module(net()))


def bucketing() -> mx.mod.BucketingModule:
    return ready(mx.mod.BucketingModule(lambda key: (net(), ["data"], ["softmax_label"]), 1))


@pytest.mark.parametrize("make", [module, bucketing])
def test_outputs_and_gradients_come_apart_by_devices(make: Callable[[], Any]) -> None:
    made = make()
    for get in (made.get_outputs, made.get_input_grads):
        (merged,), ((part,),) = get(), get(merge_multi_context=False)
        np.testing.assert_array_equal(part.asnumpy(), merged.asnumpy())
    assert [[each.shape for each in device] for device in zip(*made.get_outputs(merge_multi_context=False),
                                                               strict=True)] == [[(2, 3)]]


@pytest.mark.parametrize("make", [module, bucketing])
def test_labels_come_apart_by_devices(make: Callable[[], Any]) -> None:
    made = make()
    values = []
    for labels, pre_sliced in ((BATCH.label, False), ([BATCH.label], True)):
        metric = mx.metric.create("ce")
        made.update_metric(metric, labels, pre_sliced=pre_sliced)
        values.append(metric.get())
    assert values[0] == values[1] and np.isfinite(values[0][1])
    for labels in (BATCH.label, [BATCH.label, BATCH.label]):
        with pytest.raises(MXNetError, match="pre_sliced=True.* a list of labels for each device"):
            made.update_metric(mx.metric.create("ce"), labels, pre_sliced=True)


def test_an_argument_grows_by_reshape_only_where_it_may() -> None:
    executor = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=3).simple_bind(mx.cpu(), data=(2, 4))
    assert executor.reshape(data=(1, 4)).arg_dict["data"].shape == (1, 4)
    with pytest.raises(MXNetError, match=r"data of shape \(5, 4\) is larger .*\(2, 4\); give allow_up_sizing=True"):
        executor.reshape(data=(5, 4))
    assert executor.reshape(data=(5, 4), allow_up_sizing=True).arg_dict["data"].shape == (5, 4)
    with pytest.raises(MXNetError, match="larger"):
        executor.reshape(data=(2, 7), partial_shaping=True)


def test_an_array_is_predicted_as_a_batch_of_an_iterator() -> None:
    made, data = module(), np.ones((2, 4), np.float32)
    once = made.predict(data).asnumpy()
    assert once.shape == (2, 3)
    (listed,) = made.predict(data, always_output_list=True)
    ((apart,),) = made.predict(data, merge_batches=False)
    np.testing.assert_array_equal(listed.asnumpy(), once)
    np.testing.assert_array_equal(apart.asnumpy(), once)


def data_iter() -> mx.io.NDArrayIter:
    return mx.io.NDArrayIter(np.ones((2, 4)), np.zeros(2), 2)


def rows(batch: Any) -> None:
    return None


REFUSED = {
    "fit(sparse_row_id_fn)": (lambda: module().fit(data_iter(), num_epoch=1, sparse_row_id_fn=rows), "are dense"),
    "score(sparse_row_id_fn)": (lambda: module().score(data_iter(), "acc", sparse_row_id_fn=rows), "are dense"),
    "predict(sparse_row_id_fn)": (lambda: module().predict(data_iter(), sparse_row_id_fn=rows), "are dense"),
    "iter_predict(sparse_row_id_fn)": (lambda: list(module().iter_predict(data_iter(), sparse_row_id_fn=rows)),
                                       "are dense"),
    "prepare(sparse_row_id_fn)": (lambda: module().prepare(BATCH, rows), "are dense"),
    "Module(work_load_list)": (lambda: mx.mod.Module(net(), work_load_list=[1, 2]), "shares of 2 devices"),
    "BucketingModule(work_load_list)": (
        lambda: mx.mod.BucketingModule(lambda key: (net(), ["data"], ["softmax_label"]), 1,
                                       work_load_list=[1, 1]).bind([("data", (2, 4))]), "shares of 2 devices"),
    "FeedForward.fit(work_load_list)": (
        lambda: mx.model.FeedForward(net(), num_epoch=1).fit(data_iter(), work_load_list=[1, 3]),
        "shares of 2 devices"),
    "Module(group2ctxs)": (lambda: mx.mod.Module(net(), group2ctxs={"a": mx.cpu()}), "group2ctxs"),
    "Module(compression_params)": (lambda: mx.mod.Module(net(), compression_params={"type": "2bit"}),
                                   "compression_params"),
    "simple_bind(stype_dict)": (lambda: net().simple_bind(mx.cpu(), stype_dict={"data": "csr"}, data=(2, 4)),
                                "stype_dict"),
    "simple_bind(group2ctx)": (lambda: net().simple_bind(mx.cpu(), group2ctx={"a": mx.cpu()}, data=(2, 4)),
                               "group2ctx"),
    "simple_bind(shared_arg_names)": (lambda: net().simple_bind(mx.cpu(), shared_arg_names=["fc_weight"],
                                                                data=(2, 4)), "shared_arg_names"),
    "backward(is_train)": (lambda: net().simple_bind(mx.cpu(), data=(2, 4)).backward(is_train=False), "is_train"),
    "profiler.set_state(profile_process)": (lambda: mx.profiler.set_state("stop", "server"), "profile_process"),
    "profiler.pause(profile_process)": (lambda: mx.profiler.pause("server"), "profile_process"),
    "profiler.resume(profile_process)": (lambda: mx.profiler.resume("server"), "profile_process"),
    "profiler.dump(profile_process)": (lambda: mx.profiler.dump(True, "server"), "profile_process"),
    "RNN(projection_size)": (lambda: rnn(projection_size=2), "projection_size"),
    "RNN(lstm_state_clip_max)": (lambda: rnn(lstm_state_clip_min=-1.0, lstm_state_clip_max=1.0), "lstm_state_clip"),
    "Pooling(p_value)": (lambda: mx.sym.Pooling(mx.sym.Variable("x"), kernel=(2, 2), pool_type="lp", p_value=2),
                         "pool_type='lp'"),
    "ImageRecordIter(mean_img)": (lambda: mx.io.ImageRecordIter("x.rec", (3, 2, 2), 1, mean_img="mean.bin"),
                                  "mean_img"),
}


def rnn(**options: Any) -> None:
    symbol = mx.sym.RNN(mx.sym.Variable("x"), state_size=3, num_layers=1, mode="lstm", **options)
    symbol.simple_bind(mx.cpu(), x=(2, 1, 4))


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_had_is_refused_by_name(name: str) -> None:
    call, said = REFUSED[name]
    with pytest.raises((MXNetError, ValueError), match=said):
        call()


def test_shares_of_one_device_are_all_of_the_batch() -> None:
    assert ready(mx.mod.Module(net(), work_load_list=[5])).get_outputs()[0].shape == (2, 3)


def test_an_array_of_an_inferred_range_is_told_of() -> None:
    with pytest.warns(UserWarning, match="infer_range decides about symbols"):
        assert mx.nd.arange(3, infer_range=True).asnumpy().tolist() == [0, 1, 2]


def test_a_logger_is_the_one_that_is_told(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        mx.mod.Module(net(), logger=logging.getLogger("own")).fit(data_iter(), num_epoch=1)
    assert {record.name for record in caplog.records if "Epoch" in record.message} == {"own"}
