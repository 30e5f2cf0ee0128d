"""Tables of the papers' experiments: what a metafile gives, and what is refused."""

import re
from pathlib import Path

import pytest
from paper_tables import BEGIN, END, main, read_models

INDEX = 'Import:\n  - configs/paper/metafile.yml\n'
METAFILE = """Models:
  - Name: small
    In Collection: Paper
    Config: configs/paper/small.py
    Metadata:
      Training Data: ImageNet-1k
      Parameters: 5717416
      FLOPs: 1253683200
    Results:
      - Task: Image Classification
        Dataset: ImageNet-1k
        Source: the paper, Table 5
        Metrics:
          Top 1 Accuracy: 80.0
          Top 5 Accuracy: 95.30
      - Task: Image Classification
        Dataset: ImageNet-V2
        Source: the paper, Table 5
        Metrics:
          Top 1 Accuracy: 69.3
      - Task: Image Classification
        Dataset: ImageNet-1k
        Source: the paper, Section 4
        Note: trained twice
  - Name: plain
    In Collection: Paper
    Config: configs/paper/plain.py
    Metadata:
      Training Data: COCO
      Parameters: 113797552
"""
FIGURES = 'top-1 80.0, top-5 95.30; ImageNet-V2 top-1 69.3 (Table 5); trained twice (Section 4)'


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / 'configs' / 'paper'
    folder.mkdir(parents=True)
    (tmp_path / 'model-index.yml').write_text(INDEX)
    (folder / 'metafile.yml').write_text(METAFILE)
    (folder / 'README.md').write_text(f'# Paper\n\n{BEGIN}\n{END}\n\nMore.\n')
    for name in ('small', 'plain'):
        (folder / f'{name}.py').write_text(
            f'# A model.\n# python tools/train.py configs/paper/{name}.py\nmodel = dict()\n'
        )
    return tmp_path


def test_table_and_header_have_the_figures_as_printed(root, capsys):
    main([], root)
    assert 'written: configs/paper/README.md' in capsys.readouterr().out
    assert (root / 'configs/paper/README.md').read_text() == (
        f'# Paper\n\n{BEGIN}\n\n'
        "### ImageNet-1k\n\n| Config | Parameters | MACs | The paper's figures |\n| --- | ---: | ---: | --- |\n"
        f'| [small](small.py) | 5.717 M | 1.254 G | {FIGURES} |\n\n'
        '### COCO\n\n| Config | Parameters |\n| --- | ---: |\n| [plain](plain.py) | 113.798 M |\n\n'
        f'{END}\n\nMore.\n'
    )
    assert (root / 'configs/paper/small.py').read_text() == (
        f"# A model.\n# The paper's figures: {FIGURES}.\n"
        '# python tools/train.py configs/paper/small.py\nmodel = dict()\n'
    )
    assert (root / 'configs/paper/plain.py').read_text().startswith('# A model.\n# python tools/')


def test_check_names_what_differs_and_ends_in_status_1(root, capsys):
    main([], root)
    main(['--check'], root)
    assert '3 files agree' in capsys.readouterr().out
    path = root / 'configs/paper/README.md'
    path.write_text(path.read_text().replace('95.30', '95.31'))
    with pytest.raises(SystemExit, match='1 files differ from their metafile'):
        main(['--check'], root)
    out = capsys.readouterr().out
    assert '--- configs/paper/README.md' in out and '-| [small]' in out and '95.31' in path.read_text()


@pytest.mark.parametrize(
    ('old', 'new', 'message'),
    [
        ('Top 1 Accuracy', 'Top-1', r"model small: unknown metrics \['Top-1'\]: expected some of \['Top 1 Accuracy'"),
        ('        Source: the paper, Table 5\n', '        Source: measured\n', "'measured': expected 'the paper' and"),
    ],
)
def test_wrong_metafiles_are_refused_by_name(root, old, new, message):
    metafile = root / 'configs/paper/metafile.yml'
    metafile.write_text(METAFILE.replace(old, new))
    with pytest.raises(ValueError, match=f'{re.escape(str(metafile))}: {message}|{message}'):
        read_models(metafile, root)


def test_counts_are_written_into_the_metafile(root):
    config = root / 'configs/paper/small.py'
    config.write_text(
        '# python tools/train.py configs/paper/small.py\n'
        "default_scope = 'mmpretrain'\n"
        "model = dict(type='ImageClassifier', backbone=dict(type='vitplug.VisionTransformer', img_size=32,\n"
        '    arch=dict(embed_dims=8, num_layers=1, num_heads=1, feedforward_channels=8)),\n'
        "    head=dict(type='VisionTransformerClsHead', num_classes=2, in_channels=8))\n"
        "test_pipeline = [dict(type='CenterCrop', crop_size=32)]\n"
        'test_dataloader = dict(dataset=dict(pipeline=test_pipeline))\n'
    )
    metafile = root / 'configs/paper/metafile.yml'
    metafile.write_text(METAFILE.partition('  - Name: plain')[0])
    main(['--count'], root)
    model = read_models(metafile, root)[0]
    # Patches 16 x 16 x 3 x 8 + 8, positions 5 x 8, class token 8, norms 3 x 16, attention 4 x 64 + 32, MLP 2 x 72.
    assert model.parameters == 6152 + 40 + 8 + 48 + 288 + 144 + 18
    assert 0 < model.flops < 100_000
    assert metafile.read_text().count('FLOPs') == 1
