"""Plugs that a host has no place for are refused when the model is built, with the block where this is so."""

import pytest
from cases import HOSTS, PLUGS, REFUSED, TOKEN_HOSTS

PAIRS = [(host, plugs) for host in REFUSED for plugs in sorted(REFUSED[host])]


@pytest.mark.parametrize(('host', 'plugs'), PAIRS, ids=map('-'.join, PAIRS))
def test_refused(host, plugs):
    with pytest.raises(ValueError, match=r'blocks? (of \[)?\d'):
        (HOSTS | TOKEN_HOSTS)[host](plugs=PLUGS[plugs])
