"""Plugs that a host has no place for are refused when the model is built, with the reason."""

import pytest
from cases import HOSTS, PLUGS, REFUSED, TOKEN_HOSTS

PAIRS = [(host, plugs) for host, patterns in REFUSED.items() for plugs in patterns]


@pytest.mark.parametrize(('host', 'plugs'), PAIRS, ids=map('-'.join, PAIRS))
def test_refused(host, plugs):
    with pytest.raises(ValueError, match=REFUSED[host][plugs]):
        (HOSTS | TOKEN_HOSTS)[host](plugs=PLUGS[plugs])
