"""What is read of arrays that the L2 cache cannot hold leaves it last; what fits into it is read as ever."""

from __future__ import annotations

import re

import pytest

import kgen
from kgen.render import render

READERS = ("norm", "norm_ring", "norm_sums", "softmax", "softmax_ring")
READS = re.compile(r"\b(?:load|copy_async)\((.*?)\)(?: :|;)")


@pytest.mark.parametrize("name", READERS)
def test_all_packs_of_a_row_are_read_by_the_policy_that_its_array_has(name: str) -> None:
    for spec in map(kgen.parse, kgen.kernels()[name].defaults):
        body = render(spec).text.split('extern "C" __global__')[1]
        reads = READS.findall(body)
        if reads:  # others take packs apart that they read as words
            assert body.count("policy_for(") == 1 and all(read.endswith(", policy") for read in reads), spec


@pytest.mark.parametrize("name", READERS)
def test_a_policy_follows_from_the_bytes_of_an_array_alone(name: str) -> None:
    """Not of the rows of a block, so that all threads have the same one, in registers that a warp shares."""
    for spec in map(kgen.parse, kgen.kernels()[name].defaults):
        text = render(spec).text
        made = re.findall(r"= policy_for\((.*)\);", text)
        assert made in ([], ["static_cast<long long>(rows) * columns * sizeof(Element)"]), spec
        if made:
            assert text.index("= policy_for(") < text.index("columns = 0") if "columns = 0" in text else True, spec
