"""The list of defects fits the code: each can be made, and names a file of tests. None is made here."""

from pathlib import Path

import pytest
from mutations import MUTATIONS

ROOT = Path(__file__).parents[1]


def test_names_are_distinct():
    assert len({mutation.name for mutation in MUTATIONS}) == len(MUTATIONS)


@pytest.mark.parametrize('mutation', MUTATIONS, ids=lambda mutation: mutation.name)
def test_defect_can_be_made(mutation):
    assert (ROOT / 'vitplug' / mutation.file).read_text().count(mutation.old) == 1
    assert mutation.old != mutation.new
    assert (ROOT / 'tests' / mutation.tests.split()[0]).is_file()
