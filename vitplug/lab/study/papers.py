"""The papers' tables and figures by name: ``vitplug study ... --paper gab-figure4``."""

from collections.abc import Mapping
from dataclasses import dataclass, field

PERCENT = (15, 30, 45, 60)
RATIOS = (1.0, 1.02, 1.1, 1.12, 1.13)


@dataclass(frozen=True)
class Paper:
    """A table or a figure.

    Attributes:
        title: What it shows.
        measures, conditions: By name.
        num: Images; None for all.
        figures: The paper's numbers by condition, labelled.
        choices: What the paper leaves open, and how it is done here.
    """

    title: str
    measures: tuple[str, ...]
    conditions: tuple[str, ...] = ()
    num: int | None = None
    figures: Mapping[str, str] = field(default_factory=dict)
    choices: tuple[str, ...] = ()


ERF = Paper('effective receptive fields with Gaussians', ('erf',))
ATTACKED = (
    'FGSM: one step of the sign of the gradient, pixels from 0 to 1, clipped, the normalisation inside the model; '
)
ATTACKED += 'the paper states neither epsilon nor its domain'
TABLE_8, TABLE_12 = "CB's ViT-S {}, with CB {}, with CB_S {}", "CB's ViT-S {}, with CB {}"
V2, REAL = (
    "CB's ViT-Ti/S/B 59.9/68.1/70.5, with CB 60.9/69.3/70.6",
    "CB's ViT-Ti/S/B 80.1/85.7/86.7, with CB 80.9/86.0/86.8; Refined-ViT-S 88.3",
)


def _shifts(direction: str, at_60: str) -> Paper:
    return Paper(
        f'images shifted {direction}',
        ('score',),
        tuple(f'shift:{direction}:{percent}' for percent in PERCENT),
        figures={f'shift {direction} 60 %': at_60},
        choices=('the vacated area is zero after the normalisation',),
    )


PAPERS: Mapping[str, Paper] = {
    # Context Broadcasting
    'cb-table6': Paper(
        'ImageNet-V2 and ReaL',
        ('score',),
        figures={'ImageNet-ReaL': REAL, 'ImageNet-V2': V2},
        conditions=('real',),
        choices=(
            'ReaL: images without a label are left out; a prediction is right if it is one of the labels',
            'the paper does not say which set of ImageNet-V2 it used: name folders by --conditions imagenet-v2:DIR',
        ),
    ),
    'cb-table8': Paper(
        'occlusion of the centre, and ImageNet-A by --conditions imagenet-a:DIR',
        ('score',),
        ('occlude:50',),
        figures={
            'centre occluded, 50 %': TABLE_8.format('73.0', '74.0', '73.7'),
            'ImageNet-A': TABLE_8.format('19.0', '21.2', '19.1'),
        },
        choices=(
            'occlusion: the central half of each side (112 of 224 pixels); zero after the normalisation',
            'ImageNet-A: the best of its 200 classes; the paper does not say so',
        ),
    ),
    'cb-table8-fgsm': Paper(
        'FGSM of the size at which the first model has the accuracy of the paper',
        ('score',),
        ('fgsm:calibrate:27.2',),
        figures={'FGSM, calibrated to 27.2': TABLE_8.format('27.2', '32.3', '27.8')},
        choices=(ATTACKED,),
    ),
    'cb-table12': Paper(
        'noise and blur',
        ('score',),
        ('shot:1', 'noise:5', 'noise:10', 'blur:1', 'blur:2'),
        figures={
            'shot noise, 1 photons': TABLE_12.format('40.215', '41.088'),
            'Gaussian noise, sigma 5': TABLE_12.format('42.55', '43.436'),
            'Gaussian noise, sigma 10': TABLE_12.format('40.224', '41.068'),
            'Gaussian blur, sigma 1': TABLE_12.format('42.29', '43.26'),
            'Gaussian blur, sigma 2': TABLE_12.format('40.83', '41.44'),
        },
        choices=(
            'noise and blur act on what the model gets, 0 to 255, before the normalisation; clipped, not rounded',
            'shot noise: Poisson of the 8-bit value, one photon a grey level; the paper states no strength',
        ),
    ),
    'cb-figure3a': Paper('entropy of attention', ('entropy',)),
    'cb-figure3b': Paper('maps with their entropies', ('maps_by_entropy',)),
    'cb-figure5a': Paper('entropy by layer', ('entropy',)),
    'cb-figure5b': Paper('relative distance by layer', ('relative_distance',)),
    'cb-figure6': Paper("ratio and mean of CB_S's scales", ('learned',)),
    'cb-figure10': Paper('attention of the class token by layer', ('class_attention',)),
    # Gaussian Attention Bias
    'gab-figure1': ERF,
    'gab-figure2': ERF,
    'gab-figure3': ERF,
    'gab-figure4': Paper(
        'receptive fields after a reset of the positions',
        ('erf',),
        ('reset:ape', 'reset:ape-random', 'reset:mlp', 'reset:table'),
        choices=(
            "the caption says random positions, the authors' code has zeros: both; kinds a model lacks are left out",
        ),
    ),
    'gab-figure5': Paper('biases of patches 0, 1, 2 and the last, trained and untrained', ('bias_rows',)),
    'gab-figure6': Paper('bias of the central patch by layer', ('position_bias',)),
    'gab-table1': Paper('Gaussians fitted to the biases', ('position_bias',)),
    'gab-supplement-fields': ERF,
    'gab-supplement-values': Paper('learned A and sigma', ('learned',)),
    # Refiner
    'refiner-figure2': Paper('speed of feature evolution', ('evolving_speed-paper-refiner',), num=320),
    'refiner-figure4': Paper('speed of feature evolution with Refiner', ('evolving_speed-paper-refiner',), num=320),
    'refiner-figure5': Paper('maps with Refiner and without', ('refined_maps',)),
    'refiner-table5': Paper(
        'receptive field calibration',
        ('score',),
        tuple(f'field:{ratio:g}' for ratio in RATIOS),
        figures={
            'field calibrated, ratio 1': 'Swin-L-384 87.15, CaiT-M48-448 86.48, Refined-ViT-448 85.94',
            'field calibrated, ratio 1.02': 'B7-ns-475 88.33 (0.936: 88.23)',
            'field calibrated, ratio 1.1': 'Swin-L-384 87.18',
            'field calibrated, ratio 1.12': 'EfficientNet-L2-ns-800 88.46 (0.960: 88.35)',
            'field calibrated, ratio 1.13': 'CaiT-M48-448 86.56, Refined-ViT-448 85.98',
        },
    ),
    'refiner-table7-real': Paper('ImageNet-ReaL', ('score',), ('real',), figures={'ImageNet-ReaL': REAL}),
    # BViT
    'bvit-figure5': Paper('CKA between blocks', ('cka-paper-bvit',), num=1000),
    'bvit-figure6': Paper('mean attention distance', ('distance',)),
    'bvit-figure7': Paper('attention rollout', ('rollout',)),
    # ReViT
    'revit-figure1': Paper('Grad-CAM', ('grad_cam',)),
    'revit-figure3': Paper('similarity of tokens by layer', ('token_pairs', 'feature_similarity')),
    'revit-figure7': Paper('non-locality of heads', ('non_locality',), num=256),
    'revit-figure8': Paper('Grad-CAM of the last two layers', ('grad_cam',)),
    'revit-figure10a': Paper('alphas by layer', ('learned',)),
    'revit-tables1-2': Paper('final alphas', ('learned',)),
    'revit-table4': _shifts('right', 'ReViT-B loses 2.9 on Flowers and 1.0 on Pets less than ViT-B'),
    'revit-table5': _shifts('down', 'ReViT-B loses 3.6 on Flowers less than ViT-B'),
    'revit-table6': Paper(
        'smaller images',
        ('score',),
        tuple(f'shrink:{percent}' for percent in PERCENT),
        figures={
            'smaller by 15 %': 'ReViT-B loses 1.5 on Flowers, 0.4 on Pets',
            'smaller by 30 %': 'ReViT-B loses 4.3 on Flowers, 1.4 on Pets; ViT-B 2.5 and 0.1 more',
            'smaller by 45 %': 'ReViT-B loses 13.9 on Flowers, 6.0 on Pets; ViT-B 9.7 and 1.0 more',
            'smaller by 60 %': 'ReViT-B loses 39.0 on Flowers, 21.2 on Pets; ViT-B 19.5 and 4.7 more',
        },
    ),
}
