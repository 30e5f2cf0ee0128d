"""Compares counted parameters and MACs of the papers' models with reference figures.

Every row is built from a config of this repository; if no config has the model, a few settings are changed.
A reference is counted with other code, timm's or the paper's official code, or computed from the layers that the
paper describes. A count equals its reference if all digits agree.
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mmengine.config import Config

from vitplug.config.image_size import read_image_size
from vitplug.errors import one_line_errors
from vitplug.files.config_paths import configs_folder
from vitplug.files.whole import write_text
from vitplug.lab.costs import Cost, build_model, count_costs
from vitplug.tables import markdown_table

COMMAND = 'python docs/tools/model_table.py --out docs/models.md'
TITLE = '# Models: counted and reference figures'
HEADINGS = (
    *('model', 'config', 'image', 'parameters', 'reference', 'paper', 'G MACs', 'reference', 'paper', 'equal?'),
)
NUMERIC = (3, 4, 5, 6, 7, 8)


@dataclass(frozen=True)
class Row:
    """One model.

    Attributes:
        name: Name of the model.
        config: Path of the config in `configs/`, without suffix.
        parameters: Reference for the parameters: their number, or millions with three or two decimals as text.
        macs: Reference for the MACs, in G (10^9) with three decimals; None without a reference.
        paper: Parameters and FLOPs as printed in the paper.
        changes: Settings that turn the config's model into this model.
        note: Reason for a difference from the reference, or another remark.
    """

    name: str
    config: str
    parameters: int | str
    macs: str | None = None
    paper: tuple[str, str] = ('', '')
    changes: Mapping[str, Any] = field(default_factory=dict)
    note: str = ''

    def read(self) -> Config:
        """The config with the row's changes."""
        cfg = Config.fromfile(configs_folder('vitplug') / f'{self.config}.py')
        cfg.merge_from_dict(dict(self.changes))
        return cfg

    def count(self) -> tuple[Cost, str]:
        """The model's parameters and MACs, and the image size."""
        cfg = self.read()
        # The model's image size may differ from the size of the config's data set.
        chw = read_image_size(cfg, _as_list(self.changes.get('model.backbone.img_size')))
        costs = count_costs(build_model(cfg), cfg.default_scope, chw)
        return costs['total'], f'{chw[1]}x{chw[2]}'

    def cells(self) -> tuple[str, ...]:
        """The row as text, in the order of `HEADINGS`."""
        cost, size = self.count()
        exact = isinstance(self.parameters, int)
        parameters = f'{cost.parameters:,}'
        rounded = parameters if exact else _round_like(self.parameters, cost.parameters / 1e6)
        reference = f'{self.parameters:,}' if exact else self.parameters
        macs = f'{cost.macs / 1e9:.3f}'
        equal = rounded == reference and self.macs in (None, macs)
        verdict = 'yes' if equal else 'no'
        config = f'[{Path(self.config).name}](../configs/{self.config}.py)' + ', changed' * bool(self.changes)
        return (
            *(self.name, config, size, parameters, f'{reference}{"" if exact else " M"}', self.paper[0]),
            *(macs, self.macs or '', self.paper[1], f'{verdict}: {self.note}' if self.note else verdict),
        )


def _as_list(size: int | None) -> list[int] | None:
    return None if size is None else [size]


def _round_like(reference: str, value: float) -> str:
    decimals = len(reference.partition('.')[2])
    return f'{value:.{decimals}f}'


# --- the rows ---

CB = 'context_broadcast'
GAB = 'gaussian_bias'
REFINER = 'refiner'
RESIDUAL = 'residual_attention'
BROAD = 'broad_attention'
PLUGS = 'model.backbone.plugs'

SWIN_V2 = {
    'model.backbone.type': 'vitplug.SwinTransformerV2',
    'model.backbone.img_size': 256,
    'model.backbone.window_size': 8,
}
T2T_7 = f'{BROAD}/t2t-vit-7_8xb128-30e_in1k'
T2T_14 = {
    'model.backbone.embed_dims': 384,
    'model.backbone.num_layers': 14,
    'model.backbone.layer_cfgs': dict(num_heads=6, feedforward_channels=3 * 384),
    'model.head.in_channels': 384,
}

PLAIN_LVT = {
    'model.type': 'ImageClassifier',
    'model.backbone.out_type': 'avg_featmap',
    'model.head.type': 'LinearClsHead',
}
HOSTS = (
    Row('DeiT-Ti', f'{CB}/deit-ti-p16_8xb128-300e_in1k', 5_717_416, '1.254', ('5.7 M', '1.2 to 1.3')),
    Row('DeiT-S', f'{CB}/deit-s-p16_8xb128-300e_in1k', 22_050_664, '4.599', ('22 M', '4.6')),
    Row('DeiT-B', f'{CB}/deit-b-p16_8xb128-300e_in1k', 86_567_656, '17.564', ('86 M', '17.6')),
    Row(
        'ViT-B at 384',
        f'{CB}/deit-b-p16_8xb128-300e_in1k',
        86_859_496,
        '55.484',
        ('86 M', '55.4'),
        {'model.backbone.img_size': 384},
    ),
    Row('DeiT-Ti distilled', f'{CB}/deit-ti-distilled-p16_8xb128-300e_in1k', 5_910_800, '1.261', ('', '1.3')),
    Row('DeiT-S distilled', f'{CB}/deit-s-distilled-p16_8xb128-300e_in1k', 22_436_432, '4.624', ('', '4.6')),
    Row('DeiT-B distilled', f'{CB}/deit-b-distilled-p16_8xb128-300e_in1k', 87_338_192, '17.657', ('', '17.6')),
    Row(
        'ViT-L',
        f'{CB}/deit-b-p16_8xb128-300e_in1k',
        304_326_632,
        '61.555',
        changes={'model.backbone.arch': 'large', 'model.head.in_channels': 1024},
    ),
    Row('ViT-S (R)', f'{GAB}/vit-relpos-s-p16_8xb288-400e_in1k', 21_983_920, '4.583'),
    Row('ViT-M (R)', f'{GAB}/vit-relpos-m-p16_8xb288-400e_in1k', 38_747_208, '7.960'),
    Row('ViT-B (R)', f'{GAB}/vit-relpos-b-p16_8xb288-400e_in1k', 86_429_560, '17.487'),
    Row('Swin-T', f'{RESIDUAL}/swin-t-p4-w7_8xb128-300e_in1k', 28_288_354, '4.491', ('29 M', '4.5')),
    Row('Swin-S', f'{BROAD}/swin-s-p4-w7_8xb128-30e_in1k', 49_606_258, '8.741', ('50 M', '8.7')),
    Row('SwinV2-T', f'{RESIDUAL}/swin-t-p4-w7_8xb128-300e_in1k', 28_347_154, '5.940', changes=SWIN_V2),
    Row('SwinV2-S', f'{BROAD}/swin-s-p4-w7_8xb128-30e_in1k', 49_728_418, '11.546', changes=SWIN_V2),
    Row('T2T-ViT-7', T2T_7, 4_310_222, '1.147', ('4.2 M', '0.9')),
    Row('T2T-ViT-14', T2T_7, 21_545_550, '4.784', ('21.4 M', '4.8'), T2T_14),
    Row(
        'T2T-ViT_t-14',
        T2T_7,
        21_541_070,
        '6.089',
        ('22 M', '6.1'),
        T2T_14 | {'model.backbone.t2t_cfg.use_performer': False},
    ),
    Row('LVT', f'{BROAD}/lvt_8xb128-30e_in1k', 5_521_844, '0.889', ('5.5 M', '0.9')),
    Row('LVT, average pooling', f'{BROAD}/lvt_8xb128-30e_in1k', 3_686_604, '0.862', changes=PLAIN_LVT),
    Row('PiT-B', f'{CB}/pit-b-p14_8xb128-300e_in1k', 73_764_840, '12.402', ('', '12.4')),
    Row('Mixer-S/16', f'{CB}/mixer-s-p16_8xb128-300e_in1k', 18_528_264, '3.777', ('', '3.8')),
    Row('MViTv2-T', f'{RESIDUAL}/mvitv2-t_8xb256-300e_in1k', 24_173_320, '4.677', ('24 M', '4.7')),
)

SWIN_GAB = {PLUGS: [dict(type='GaussianAttentionBias')]}
POOLED = 'the paper calls the extra MACs negligible; counted from its equations, with the values pooled first'
PLUGGED = (
    Row('DeiT-Ti + CB', f'{CB}/deit-ti-p16-cb_8xb128-300e_in1k', 5_717_416, '1.254', ('', '1.3')),
    Row('DeiT-S + CB', f'{CB}/deit-s-p16-cb_8xb128-300e_in1k', 22_050_664, '4.599', ('', '4.6')),
    Row('DeiT-B + CB', f'{CB}/deit-b-p16-cb_8xb128-300e_in1k', 86_567_656, '17.564', ('', '17.6')),
    Row('DeiT-Ti + CB_S', f'{CB}/deit-ti-p16-cb-scaled_8xb128-300e_in1k', 5_719_720, '1.254', ('', '1.3')),
    Row('DeiT-S + CB_S', f'{CB}/deit-s-p16-cb-scaled_8xb128-300e_in1k', 22_055_272, '4.599', ('+0.02 %', '4.6')),
    Row('DeiT-B + CB_S', f'{CB}/deit-b-p16-cb-scaled_8xb128-300e_in1k', 86_576_872, '17.564', ('', '17.6')),
    Row('PiT-B + CB', f'{CB}/pit-b-p14-cb_8xb128-300e_in1k', 73_764_840, '12.402', ('', '12.4')),
    # One factor for each channel of each block.
    Row('PiT-B + CB_S', f'{CB}/pit-b-p14-cb-scaled_8xb128-300e_in1k', 73_764_840 + 7_936, '12.402', ('', '12.4')),
    Row('Mixer-S/16 + CB', f'{CB}/mixer-s-p16-cb_8xb128-300e_in1k', 18_528_264, '3.777', ('', '3.8')),
    Row('ViT-S (R) + GAB', f'{GAB}/vit-relpos-s-p16-gab_8xb288-400e_in1k', 21_983_944, '4.583', ('+24', '')),
    Row('ViT-M (R) + GAB', f'{GAB}/vit-relpos-m-p16-gab_8xb288-400e_in1k', 38_747_232, '7.960', ('+24', '')),
    Row('ViT-B (R) + GAB', f'{GAB}/vit-relpos-b-p16-gab_8xb288-400e_in1k', 86_429_584, '17.487', ('+24', '')),
    Row('Swin-S + GAB', f'{BROAD}/swin-s-p4-w7_8xb128-30e_in1k', 49_606_306, '8.741', ('+48', ''), SWIN_GAB),
    Row(
        'BViT-5M',
        f'{BROAD}/deit-ti-p16-broad_8xb160-300e_in1k',
        5_717_416,
        '1.351',
        ('5.7 M', '1.2'),
        note=POOLED,
    ),
    Row(
        'BViT-22M',
        f'{BROAD}/deit-s-p16-broad_8xb64-300e_in1k',
        22_050_664,
        '4.793',
        ('22.1 M', '4.7'),
        note=POOLED,
    ),
    Row('BSwin-T', f'{BROAD}/swin-t-p4-w7-broad_8xb128-30e_in1k', 28_288_354, None, ('29.0 M', '4.5')),
    Row('BSwin-S', f'{BROAD}/swin-s-p4-w7-broad_8xb128-30e_in1k', 49_606_258, None, ('50.0 M', '8.7')),
    Row('BT2T-ViT-7', f'{BROAD}/t2t-vit-7-broad_8xb128-30e_in1k', 4_310_222, None, ('4.2 M', '0.9')),
    Row('BLVT', f'{BROAD}/lvt-broad_8xb128-30e_in1k', 5_521_844, None, ('5.5 M', '0.9')),
    Row(
        'ReViT-B',
        f'{RESIDUAL}/vit-b-p16-residual_32xb128-300e_in1k',
        86_566_121,
        '17.472',
        ('86 M', '17.5'),
    ),
    Row(
        'ReViT-B, class token',
        f'{RESIDUAL}/vit-b-p16-cls-residual_32xb128-300e_in1k',
        86_567_657,
        '17.564',
    ),
    Row(
        'ReSwin-T',
        f'{RESIDUAL}/swin-t-p4-w7-residual-official_8xb128-300e_in1k',
        28_288_354,
        '4.491',
        ('29 M', '4.5'),
    ),
    Row(
        'ReMViTv2-T',
        f'{RESIDUAL}/mvitv2-t-residual-official_8xb256-300e_in1k',
        24_173_321,
        '4.677',
        ('24 M', '4.7'),
    ),
)


def _official(size: str, parameters: int, macs: str) -> Row:
    config = f'{REFINER}/convstem-vit-{size}-p16-refiner-official_8xb64-300e_in1k'
    return Row(f'Refined-ViT-{size.upper()}, official form', config, parameters, macs)


def _unshared(size: str, parameters: str) -> Row:
    config = f'{REFINER}/convstem-vit-{size}-p16-refiner_8xb64-300e_in1k'
    return Row(
        f'Refined-ViT-{size.upper()} without sharing', config, parameters, changes={PLUGS: [dict(type='Refiner')]}
    )


def _expanded(expansion: int, in_a_block: int) -> Row:
    config = f'{REFINER}/convstem-vit-s-p16-refiner-r{expansion}_8xb32-300e_in1k'
    return Row(f'Refined-ViT 16 x 384, r = {expansion}', config, 25_006_472 + 8 * in_a_block, paper=('25 M', ''))


NO_86_M = "the paper prints ViT-B's 86 M in all rows of Table 11"
REFINED = (
    Row('ViT 12 x 768', f'{REFINER}/vit-b-p16_8xb32-300e_in1k', '86.568', None, ('86 M', '')),
    Row('ViT 16 x 384', f'{REFINER}/vit-16x384-p16_8xb32-300e_in1k', '24.424', '5.183', ('24 M', '')),
    Row('ViT 24 x 384', f'{REFINER}/vit-24x384-p16_8xb32-300e_in1k', '36.257', '7.745', ('36 M', '')),
    Row('ViT 32 x 384', f'{REFINER}/vit-32x384-p16_8xb32-300e_in1k', '48.090', '10.308', ('48 M', '')),
    _expanded(1, 396),
    _expanded(6, 2376),
    Row('Refined-ViT-Base', f'{REFINER}/vit-b-p16-refiner_8xb32-300e_in1k', '86.582', None, ('86 M', '')),
    Row(
        'ViT-Base, convolutional stem',
        f'{REFINER}/convstem-vit-b-p16_8xb32-300e_in1k',
        92_366_600,
        paper=('86 M', ''),
        note=NO_86_M,
    ),
    Row(
        'Refined-ViT-Base, convolutional stem',
        f'{REFINER}/convstem-vit-b-p16-refiner_8xb32-300e_in1k',
        85_286_624,
        paper=('86 M', ''),
        note=NO_86_M,
    ),
    Row('Refined-ViT-S', f'{REFINER}/convstem-vit-s-p16-refiner_8xb64-300e_in1k', '25.016', None, ('25 M', '7.2')),
    Row('Refined-ViT-M', f'{REFINER}/convstem-vit-m-p16-refiner_8xb64-300e_in1k', '55.013', None, ('55 M', '13.5')),
    Row('Refined-ViT-L', f'{REFINER}/convstem-vit-l-p16-refiner_8xb64-300e_in1k', '80.617', None, ('81 M', '19.1')),
    _official('s', 25_023_656, '6.742'),
    _official('m', 55_029_932, '13.418'),
    _official('l', 80_637_192, '19.086'),
    _unshared('s', '27.39'),
    _unshared('m', '60.69'),
    _unshared('l', '89.05'),
)

UPERNET = (
    Row('UPerNet, DeiT-Ti', f'{CB}/deit-ti-p16_upernet_8xb2-160k_ade20k-512x512', '34.063', None, ('34.1 M', '')),
    Row('UPerNet, DeiT-S', f'{CB}/deit-s-p16_upernet_8xb2-160k_ade20k-512x512', '53.547', None, ('53.5 M', '')),
    Row('UPerNet, DeiT-B', f'{CB}/deit-b-p16_upernet_8xb2-160k_ade20k-512x512', '127.020', None, ('127.0 M', '')),
)

SECTIONS: Mapping[str, Sequence[Row]] = {
    'Hosts': HOSTS,
    'With a plug': PLUGGED,
    'Refiner': REFINED,
    'Segmentation (ADE20K, 150 classes)': UPERNET,
}


# --- the document ---

PREAMBLE = f"""{TITLE}

Written by

    {COMMAND}

*Parameters* are all parameters of the model that the config builds. *G MACs* are 10^9 multiply-accumulates of
convolutions and matrix products, including attention, for one image. Both are counted by vitplug. T2T-ViT's parameters
include its fixed position table and random features, as its official code counts them.

*Reference* is a count with other code: timm 1.0.31 for the hosts, and the official code for T2T-ViT, LVT,
ReViT-B, ReSwin-T and the official form of Refined-ViT. All other references are computed from the
layers that the paper describes. *Paper* is the figure printed in the paper. *Equal?* compares all digits of count and
reference. "Changed" configs have other settings, listed in `docs/tools/model_table.py`."""

NOTES = """## Not in the tables

BViT's official code has a convolution with 3 channels before the patch embedding and no bias in q, k and v (5,710,948
and 22,037,284 parameters); neither is in the paper, and its larger model does not run.

Linear Refiner is counted as the computed convolution, `9 H^2 N^2` per block for any expansion."""


def write_document(show=lambda section, table: None) -> str:
    """The document in Markdown.

    Args:
        show: Called with the title and the table of each section when it is counted.
    """
    parts = [PREAMBLE]
    for title, rows in SECTIONS.items():
        table = markdown_table([HEADINGS, *(row.cells() for row in rows)], NUMERIC)
        show(title, table)
        parts.append(f'## {title}\n\n{table}')
    return '\n\n'.join((*parts, NOTES)) + '\n'


def check_replaceable(path: Path) -> None:
    """Checks that a file does not exist, or was written by this command.

    Raises:
        FileExistsError: If it is another file.
        FileNotFoundError: If its folder does not exist.
    """
    if path.is_file() and path.read_text(errors='replace').startswith(TITLE):
        return
    if path.exists():
        raise FileExistsError(
            f'--out {path}: exists and is not a table of models, so it is not overwritten: choose another name'
        )
    if not path.parent.is_dir():
        raise FileNotFoundError(f'--out {path}: there is no folder {path.parent}; create it first')


def main(argv: Sequence[str] | None = None) -> None:
    """Prints the tables and writes the document. A wrong setting gives a one-line error and exit status 2."""
    parser = argparse.ArgumentParser(description="Count the papers' models and compare them with reference figures.")
    parser.add_argument('--out', type=Path, metavar='MD', help='Markdown file for the tables')
    args = parser.parse_args(argv)
    with one_line_errors():
        if args.out:
            check_replaceable(args.out)
        text = write_document(lambda title, table: print(f'{title}\n\n{table}\n', flush=True))
        if args.out:
            write_text(args.out, text)
            print(f'written to {args.out}')


if __name__ == '__main__':
    main()
