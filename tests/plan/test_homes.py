"""Plans in which a weight is at home on the host: the verifier accepts the right one and finds every fault in it."""
from __future__ import annotations

import pytest

from minigraph.plan.plan import IN_STREAM, OUT_STREAM, Kind, Plan
from minigraph.plan.verify import VerificationError, verify

from .build import Maker, corrupt
from .failing import assert_names, failure


def away(*, takes_home: str = "after", last: str = "home_after", waits: bool = True) -> Plan:
    """A weight comes in, is read, is changed, and goes home while the gradient is read once more.

    data %0, weight %1 (host), copy %2, gradient %3, after %4 in place of copy, home_after %5 in place of weight,
    out %6.
    """
    m = Maker()
    data, weight = m.value("data", buffer_class="input"), m.value("weight", arena="host", buffer_class="parameter")
    copy, gradient = m.value("copy"), m.value("gradient", buffer_class="backward")
    after, home_after = m.value("after", over=copy), m.value("home_after", over=weight, buffer_class="parameter")
    out = m.value("out", buffer_class="output")
    named = {"copy": copy, "after": after, "gradient": gradient, "home_after": home_after, "weight": weight}
    m.copy_in(weight, copy)                             # 0
    m.record(0, IN_STREAM)                              # 1
    m.wait(0)                                           # 2
    m.run("t_dense", (data, copy), (gradient,))         # 3
    m.run("t_update", (copy, gradient), (after,))       # 4
    m.record(1)                                         # 5
    if waits:
        m.wait(1, OUT_STREAM)                           # 6
    m.copy_out(named[takes_home], home_after)           # 7
    m.record(2, OUT_STREAM)                             # 8
    m.run("t_unary", (gradient,), (out,))               # 9
    m.wait(2, free=(named[takes_home],))                # 10
    return m.plan(inputs=(data,), outputs=(out,), persistent=((weight, named[last]),))


def test_a_weight_that_comes_in_is_changed_and_goes_home_is_right() -> None:
    verify(away())


def test_a_change_that_is_not_taken_home_is_caught() -> None:
    m = Maker()
    data, weight = m.value("data"), m.value("weight", arena="host")
    copy, out = m.value("copy"), m.value("out")
    after = m.value("after", over=copy)
    m.copy_in(weight, copy, stream=0)
    m.run("t_update", (copy, data), (after,))
    m.run("t_unary", (after,), (out,))
    error = failure(m.plan(inputs=(data,), outputs=(out,), persistent=((weight, weight),)))
    assert_names(error, (1, 3))
    assert "'weight'" in str(error) and "home at the end" in str(error)


def test_a_home_that_gets_the_value_before_the_change_is_caught() -> None:
    with pytest.raises(VerificationError):
        verify(away(takes_home="copy"))


def test_a_weight_that_ends_on_the_device_or_is_said_to_be_unchanged_is_caught() -> None:
    for last, words in (("after", "must end where it started"), ("weight", "weight")):
        assert words in str(failure(away(last=last)))


def test_a_copy_home_that_does_not_wait_for_the_change_is_caught() -> None:
    assert "does not wait" in str(failure(away(waits=False)))


def test_a_read_before_the_weight_has_come_in_is_caught() -> None:
    plan = away()
    events = corrupt(plan, i_stream=(2, OUT_STREAM))
    assert events.instructions.kind[2] == Kind.WAIT
    assert "does not wait" in str(failure(events))


def test_a_home_that_is_overwritten_by_another_value_is_caught() -> None:
    m = Maker()
    data, first, second = m.value("data"), m.value("first", arena="host"), m.value("second", arena="host")
    copy, first_after = m.value("copy"), m.value("first_after", over=first)
    out = m.value("out")
    m.copy_in(second, copy, stream=0)
    m.copy_out(copy, first_after, stream=0)
    m.run("t_unary", (data,), (out,))
    error = failure(m.plan(inputs=(data,), outputs=(out,), persistent=((first, first_after), (second, second))))
    assert "'second'" in str(error) and "is not what is copied" in str(error)


def test_changing_a_copy_that_is_behind_is_caught() -> None:
    m = Maker()
    data, weight, old, new = m.value("data"), m.value("weight", arena="host"), m.value("old"), m.value("new")
    once, twice = m.value("once", over=new), m.value("twice", over=old)
    home = m.value("home", over=weight)
    out = m.value("out")
    m.copy_in(weight, old, stream=0)
    m.copy_in(weight, new, stream=0)
    m.run("t_update", (new, data), (once,))
    m.run("t_update", (old, data), (twice,))
    m.copy_out(twice, home, stream=0)
    m.run("t_unary", (once,), (out,))
    assert "which is changed" in str(failure(m.plan(inputs=(data,), outputs=(out,), persistent=((weight, home),))))
