"""Position biases of queries and keys on grids of their own, pair by pair."""

import attention_oracle as oracles
import torch
from attention_oracle import assert_same
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from vitplug.attention import Attention, DenseBias, GridPair, OffsetBias, QueryBias, TokenGrid
from vitplug.attention.bias import merged

SCALE = 0.7
grids = st.builds(TokenGrid, st.integers(1, 4), st.integers(1, 4), st.integers(0, 2))
pairs_of_grids = st.one_of(st.builds(GridPair, grids, grids), st.builds(lambda grid: GridPair(grid, grid), grids))


def leaf(*shape):
    return torch.randn(shape, dtype=torch.float64).requires_grad_()


def table_of(pairs, heads):
    return leaf(heads, *(q + k - 1 for q, k in zip(pairs.queries.hw, pairs.keys.hw, strict=True)))


def query_bias_of(pairs, *lead):
    return [leaf(*lead, pairs.queries.height * pairs.queries.width, side) for side in pairs.keys.hw]


@given(pairs=pairs_of_grids, heads=st.integers(1, 2), more=st.integers(0, 3), data=st.data())
def test_rows_cut_from_the_table_are_those_of_all_pairs(pairs, heads, more, data):
    """And the entry of every pair is that of its offset; keys after the grid's are left alone."""
    table, tokens = table_of(pairs, heads), pairs.queries.num_tokens
    assert table.shape[1:] == pairs.table_size
    expected = oracles.offset_bias(table, pairs.queries, pairs.keys)
    assert_same([pairs.expand(table)], [expected], [table])
    rows = slice(*sorted(data.draw(st.tuples(*[st.integers(0, tokens)] * 2).filter(lambda r: r[0] != r[1]))))
    row_table, before = (
        pairs.to_row_table(table),
        torch.randn(heads, rows.stop - rows.start, pairs.keys.num_tokens + more),
    )
    got = before.double()
    with torch.no_grad():
        pairs.add_rows(got, row_table, rows)
    assert_close(got, before + torch.nn.functional.pad(expected[:, rows], (0, more)))
    g, grad_of_row_table = torch.randn_like(got), torch.zeros_like(row_table)
    pairs.add_to_row_table(grad_of_row_table, rows, g)
    (grad,) = torch.autograd.grad(row_table, table, grad_of_row_table)
    assert_close(grad, *torch.autograd.grad(expected[:, rows], table, g[..., : pairs.keys.num_tokens]))


@given(pairs=pairs_of_grids, heads=st.integers(1, 2), step=st.integers(1, 9))
def test_rows_may_have_room_for_surplus_keys(pairs, heads, step):
    table = table_of(pairs, heads)
    wide, num_keys = pairs.expand(table, step), pairs.keys.num_tokens
    assert 0 <= wide.shape[-1] - num_keys < step and wide.shape[-1] % step == 0
    assert_same([wide[..., :num_keys]], [oracles.offset_bias(table, pairs.queries, pairs.keys)], [table])


@given(pairs=pairs_of_grids, images=st.integers(1, 2), windows=st.integers(1, 2), heads=st.integers(1, 2))
def test_bias_by_query(pairs, images, windows, heads):
    """One value for the key's row and one for its column, of each query."""
    rows, columns = query_bias_of(pairs, images, windows, heads)
    expected = oracles.query_bias(rows, columns, pairs.queries, pairs.keys)
    assert_same([QueryBias(rows, columns, pairs).expand()], [expected], [rows, columns])


@given(
    pairs=pairs_of_grids,
    lead=st.tuples(st.integers(1, 2), st.integers(1, 2), st.integers(1, 2)),
    dims=st.integers(1, 3),
    kinds=st.sets(st.sampled_from(['offset', 'dense'])),
    is_masked=st.booleans(),
)
def test_folded_biases_are_expanded_ones(pairs, lead, dims, kinds, is_masked):
    """The products of wider q and k, and the mask, gain the biases; that by offset stays."""
    nq, nk = pairs.queries.num_tokens, pairs.keys.num_tokens
    q, k, v = leaf(*lead, nq, dims), leaf(*lead, nk, dims), leaf(*lead, nk, dims)
    table, (rows, columns), values = table_of(pairs, lead[2]), query_bias_of(pairs, *lead), leaf(1, lead[1], 1, nq, nk)
    biases, expected = [QueryBias(rows, columns, pairs)], oracles.scores(q, k, SCALE)
    expected, leaves = expected + oracles.query_bias(rows, columns, pairs.queries, pairs.keys), [q, k, rows, columns]
    if 'offset' in kinds:
        biases, leaves = [*biases, OffsetBias(table, pairs)], [*leaves, table]
        expected = expected + oracles.offset_bias(table, pairs.queries, pairs.keys)
    if 'dense' in kinds:
        biases, leaves, expected = [DenseBias(values), *biases], [*leaves, values], expected + values
    mask = leaf(lead[0], 1, 1, 1, nk) if is_masked else None
    a = Attention(q, k, v, SCALE, tuple(biases), mask)
    folded = a.folded()
    assert [type(bias) for bias in folded.biases] == [OffsetBias] * ('offset' in kinds)
    got = oracles.scores(folded.q, folded.k, folded.scale)
    got = got + sum(oracles.offset_bias(bias.table, pairs.queries, pairs.keys) for bias in folded.biases)
    got = got if folded.mask is None else got + folded.mask
    expected = expected + mask if is_masked else expected
    assert_same([got], [expected], [*leaves, mask])


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
