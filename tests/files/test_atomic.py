"""Files that are written as a whole: what lies in the way under the name of the partial one."""

import os

import pytest

from vitplug.files.atomic import AtomicBackend, remove_partial_files


@pytest.mark.parametrize('make', [os.mkfifo, os.mkdir])
def test_what_is_no_file_is_somebodys_and_stays(tmp_path, make):
    make(tmp_path / '.a.pth.partial')
    with pytest.raises(FileExistsError, match=r'\.a\.pth\.partial is no regular file, and is in the way'):
        AtomicBackend().put(b'x', tmp_path / 'a.pth')
    assert remove_partial_files(tmp_path) == [] and (tmp_path / '.a.pth.partial').exists()


def test_nothing_is_written_into_a_folder_that_took_the_place_of_another(tmp_path, monkeypatch):
    work, mine = tmp_path / 'work', tmp_path / 'mine'
    for folder in (work, mine):
        folder.mkdir()
        (folder / 'a.pth').write_text(folder.name)

    def swapped(self, path, content, write=AtomicBackend.write):
        work.rename(tmp_path / 'old')
        work.symlink_to(mine)
        write(self, path, content)

    monkeypatch.setattr(AtomicBackend, 'write', swapped)
    with pytest.raises(FileNotFoundError, match='work was removed or replaced while it was written into'):
        AtomicBackend().put(b'new', work / 'a.pth')
    assert [path.name for path in mine.iterdir()] == ['a.pth'] and (mine / 'a.pth').read_text() == 'mine'


def test_what_a_killed_writer_left_goes_and_a_link_is_not_followed(tmp_path):
    (tmp_path / 'mine').write_text('mine')
    (tmp_path / '.a.pth.partial').symlink_to('mine')
    AtomicBackend().put(b'x', tmp_path / 'a.pth')
    (tmp_path / '.b.pth.partial').write_text('half')
    assert remove_partial_files(tmp_path) == [tmp_path / '.b.pth.partial']
    assert sorted(path.name for path in tmp_path.iterdir()) == ['a.pth', 'mine']
    assert (tmp_path / 'mine').read_text() == 'mine'
