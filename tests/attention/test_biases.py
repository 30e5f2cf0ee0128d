"""Position biases of queries and keys on grids of their own, pair by pair."""

import attention_oracle as oracles
import torch
from attention_oracle import assert_same
from hypothesis import given
from hypothesis import strategies as st

from vitplug.attention import DenseBias, GridPair, OffsetBias, QueryBias, TokenGrid
from vitplug.attention.bias import merged

grids = st.builds(TokenGrid, st.integers(1, 4), st.integers(1, 4), st.integers(0, 2))
pairs_of_grids = st.one_of(st.builds(GridPair, grids, grids), st.builds(lambda grid: GridPair(grid, grid), grids))


def leaf(*shape):
    return torch.randn(shape, dtype=torch.float64).requires_grad_()


def table_of(pairs, heads):
    return leaf(heads, *(q + k - 1 for q, k in zip(pairs.queries.hw, pairs.keys.hw, strict=True)))


def query_bias_of(pairs, *lead):
    return [leaf(*lead, pairs.queries.height * pairs.queries.width, side) for side in pairs.keys.hw]


@given(pairs=pairs_of_grids, heads=st.integers(1, 2), step=st.integers(1, 9), flat=st.booleans())
def test_the_entry_of_every_pair_is_that_of_its_offset(pairs, heads, step, flat):
    """There is room for surplus keys."""
    table, num_keys = table_of(pairs, heads), pairs.keys.num_tokens
    assert table.shape[1:] == pairs.table_size
    wide = pairs.expand(table.flatten(1) if flat else table, step)
    assert 0 <= wide.shape[-1] - num_keys < step and wide.shape[-1] % step == 0
    assert_same([wide[..., :num_keys]], [oracles.offset_bias(table, pairs.queries, pairs.keys)], [table])


@given(pairs=pairs_of_grids, factor=st.sampled_from([0.0, -1.5, 2.0]))
def test_biases_of_a_kind_are_scaled_and_summed(pairs, factor):
    lead, (nq, nk) = (2, 1, 2), (pairs.queries.num_tokens, pairs.keys.num_tokens)
    tables, queries = [table_of(pairs, 2) for _ in range(2)], [query_bias_of(pairs, *lead) for _ in range(2)]
    values = [leaf(*lead, nq, nk) for _ in range(2)]
    biases = [kind for pair in zip(tables, queries, values, strict=True) for kind in _three(pairs, *pair)]
    found = merged(bias.scaled(factor) for bias in biases)
    assert [type(bias) for bias in found] == [OffsetBias, QueryBias, DenseBias]
    expected = (
        factor * sum(oracles.offset_bias(table, pairs.queries, pairs.keys) for table in tables),
        factor * sum(oracles.query_bias(*both, pairs.queries, pairs.keys) for both in queries),
        factor * sum(values),
    )
    leaves = [*tables, *(t for both in queries for t in both), *values]
    assert_same([bias.expand() for bias in found], expected, leaves)


def _three(pairs, table, query, values):
    return OffsetBias(table, pairs), QueryBias(*query, pairs), DenseBias(values)
