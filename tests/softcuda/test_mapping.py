"""Virtual memory management behaves as CUDA documents it, and every checker of the driver understands it."""
from __future__ import annotations

from .programs import mapping

PAGE = mapping.PAGE


def test_device_says_that_it_manages_virtual_memory_in_pages_of_2_mib(run):
    assert run(mapping.support).value == [1, PAGE, PAGE]


def test_one_page_at_two_addresses_shows_the_same_bytes(run):
    assert run(mapping.write_here_read_there).value == [True, True, 0.0]
