"""The papers' tests of robustness, and the common corruptions: what each changes, and what its paper leaves open."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from .attacks import FGSM, PGD, StandardAutoAttack
from .columns import Column
from .conditions import CLEAN, ZERO, Condition, after_loading, at_input, calibrated, check_resizes, unresized
from .scores import Truth
from .transforms import corruption_names

CLASSIFICATION = ('mmpretrain',)
ALL_TASKS = ('mmpretrain', 'mmseg', 'mmdet')
ALL = 'all'
PERCENT = (15, 30, 45, 60)
SEVERITIES = range(1, 6)
NOISES = ('gaussian_noise', 'shot_noise', 'impulse_noise')
IMAGENET_CLASSES = 1000
# Pixels from 0 to 1 have their sizes of attacks in 1 / 255.
WHITE_LEVELS = 255
# AlexNet's top-1 errors, means over the five severities of ImageNet-C, which mCE divides by (Hendrycks and Dietterich,
# 2019).
ALEXNET = dict(
    gaussian_noise=0.886428, shot_noise=0.894468, impulse_noise=0.922640, defocus_blur=0.819880, glass_blur=0.826268,
    motion_blur=0.785948, zoom_blur=0.798360, snow=0.866816, frost=0.826572, fog=0.819324, brightness=0.564592,
    contrast=0.853204, elastic_transform=0.646056, pixelate=0.717840, jpeg_compression=0.606500,
)  # fmt: skip
# Figures of the papers, by row.
TABLE_8 = "CB's ViT-S {}, with CB {}, with CB_S {}"
TABLE_12 = "CB's ViT-S {}, with CB {}"
REVIT_SHRUNK = {
    15: "ReViT-B loses 1.5 on Flowers, 0.4 on Pets",
    30: "ReViT-B loses 4.3 on Flowers, 1.4 on Pets; ViT-B 2.5 and 0.1 more",
    45: "ReViT-B loses 13.9 on Flowers, 6.0 on Pets; ViT-B 9.7 and 1.0 more",
    60: "ReViT-B loses 39.0 on Flowers, 21.2 on Pets; ViT-B 19.5 and 4.7 more",
}  # fmt: skip
REVIT_SHIFTED = {
    ('horizontal', 60): 'ReViT-B loses 2.9 on Flowers and 1.0 on Pets less than ViT-B',
    ('vertical', 60): 'ReViT-B loses 3.6 on Flowers less than ViT-B',
}
REFINER_FIELDS = {
    1.0: 'Swin-L-384 87.15, CaiT-M48-448 86.48, Refined-ViT-448 85.94',
    1.02: 'B7-ns-475 88.33 (0.936: 88.23)',
    1.1: 'Swin-L-384 87.18',
    1.12: 'EfficientNet-L2-ns-800 88.46 (0.960: 88.35)',
    1.13: 'CaiT-M48-448 86.56, Refined-ViT-448 85.98',
}


@dataclass(frozen=True)
class Options:
    """What a call says of its suites.

    Attributes:
        epsilons: Sizes of the attacks, of pixels from 0 to 1.
        pgd_steps: Steps of PGD; 0 for no PGD.
        autoattack: Whether to attack with AutoAttack, too.
        directions: Of the shifts: ``'first'`` for right and down, ``'both'`` for left and up, too.
        photons: Of the shot noise, for one grey level.
        severities: Of the corruptions.
        imagenet_a: The folder of ImageNet-A; None for none.
        imagenet_v2: Folders of ImageNet-V2.
        imagenet_c: The folder of ImageNet-C; None for corruptions in memory.
    """

    epsilons: Sequence[float] = ()
    pgd_steps: int = 0
    autoattack: bool = False
    directions: str = 'first'
    photons: float = 1.0
    severities: Sequence[int] = SEVERITIES
    imagenet_a: Path | None = None
    imagenet_v2: Sequence[Path] = ()
    imagenet_c: Path | None = None


@dataclass(frozen=True)
class Suite:
    """Conditions that belong together.

    Attributes:
        title: Of its table.
        libraries: Of the tasks that it is defined for.
        conditions: Its conditions, for some columns. It raises a ValueError or FileNotFoundError if the call or the
            data lack what they need.
        choices: What the paper leaves open and how it is done here.
    """

    title: str
    libraries: Sequence[str]
    conditions: Callable[[Sequence[Column], Options], Iterator[Condition]]
    choices: Sequence[str] = ()


# --- CB ---


def _cb_table8(columns: Sequence[Column], options: Options) -> Iterator[Condition]:
    yield Condition(
        'centre occluded',
        edit=at_input(type='vitplug.OccludeCentre', fraction=0.5, fill=ZERO),
        paper=TABLE_8.format('73.0', '74.0', '73.7'),
    )
    if not options.epsilons:
        raise ValueError(
            'cb-table8: the paper does not state the size of its FGSM: give --epsilon, such as 1/255, or --calibrate '
            "with the accuracy that the first model shall have; 27.2 is that of the paper's ViT-S"
        )
    for epsilon in options.epsilons:
        size = f'epsilon {WHITE_LEVELS * epsilon:.6g}/255'
        attacked = dict(strength=WHITE_LEVELS * epsilon, unit='epsilon, in 1/255')
        yield Condition(
            f'FGSM, {size}', 'FGSM', attack=FGSM(epsilon), paper=TABLE_8.format('27.2', '32.3', '27.8'), **attacked
        )
        if options.pgd_steps:
            name = f'PGD, {options.pgd_steps} steps'
            yield Condition(f'{name}, {size}', name, attack=PGD(epsilon, options.pgd_steps), **attacked)
        if options.autoattack:
            name = 'AutoAttack'
            yield Condition(f'{name}, {size}', name, attack=StandardAutoAttack(epsilon), **attacked)
    if options.imagenet_a:
        classes = [int(index) for index in _timm_list('imagenet_a_indices.txt')]
        _check_imagenet(columns, 'ImageNet-A')
        _check_folders(options.imagenet_a, _timm_list('imagenet_a_synsets.txt'), '--imagenet-a')
        clean = Condition('clean, the 200 classes of ImageNet-A', truth=Truth(among=classes), clean=None)
        yield clean
        yield Condition(
            'ImageNet-A',
            folder=options.imagenet_a,
            truth=Truth(class_of=classes, among=classes),
            paper=TABLE_8.format('19.0', '21.2', '19.1'),
            clean=None,
        )


def _cb_table6(columns: Sequence[Column], options: Options) -> Iterator[Condition]:
    _check_imagenet(columns, 'cb-table6')
    names = _image_names(columns[0])
    sets = dict(zip(map(_validation_name, range(1, 50_001)), _real_labels(), strict=True))
    unknown = [name for name in names if name not in sets]
    if unknown:
        raise ValueError(
            f'cb-table6: ReaL labels the 50,000 validation images of ImageNet by their names, such as '
            f'{_validation_name(1)}, and the test data have {unknown[0]}: name a config of ImageNet'
        )
    yield Condition('ImageNet-ReaL', truth=Truth(sets=sets), paper=TABLE_6['ReaL'], clean=None)
    order = sorted(map(str, range(IMAGENET_CLASSES)))  # folders are classes by number, sorted as text
    for folder in options.imagenet_v2:
        _check_folders(folder, order, '--imagenet-v2')
        truth = Truth(class_of=[int(name) for name in order])
        yield Condition(f'ImageNet-V2, {folder.name}', folder=folder, truth=truth, paper=TABLE_6['V2'], clean=None)


TABLE_6 = {
    'V2': "CB's ViT-Ti/S/B 59.9/68.1/70.5, with CB 60.9/69.3/70.6",
    'ReaL': "CB's ViT-Ti/S/B 80.1/85.7/86.7, with CB 80.9/86.0/86.8; Refined-ViT-S 88.3",
}


def _cb_table12(columns: Sequence[Column], options: Options) -> Iterator[Condition]:
    yield Condition(
        'shot noise' + (f', {options.photons:g} photons a grey level' if options.photons != 1 else ''),
        edit=at_input(type='vitplug.ShotNoise', photons=options.photons, seed=0),
        drawn=True,
        paper=TABLE_12.format('40.215 ± 0.151', '41.088 ± 0.094'),
    )
    noise = dict(type='vitplug.GaussianNoise', seed=0)
    blur = dict(type='vitplug.GaussianBlur')
    for name, step, sigma, unit, *scores in (
        ('Gaussian noise', noise, 5, 'grey levels', '42.55 ± 0.0821', '43.436 ± 0.0806'),
        ('Gaussian noise', noise, 10, 'grey levels', '40.224 ± 0.065', '41.068 ± 0.0591'),
        ('Gaussian blur', blur, 1, 'pixels', '42.29', '43.26'),
        ('Gaussian blur', blur, 2, 'pixels', '40.83', '41.44'),
    ):
        yield Condition(
            f'{name}, sigma {sigma}',
            name,
            sigma,
            f'sigma, {unit}',
            at_input(**step, sigma=sigma),
            drawn=step is noise,
            paper=TABLE_12.format(*scores),
        )


# --- ReViT ---


def _shifts(axis: str, first: str, second: str) -> Callable[[Sequence[Column], Options], Iterator[Condition]]:
    def conditions(columns: Sequence[Column], options: Options) -> Iterator[Condition]:
        for direction in (first, second) if options.directions == 'both' else (first,):
            for percent in PERCENT:
                yield Condition(
                    f'shift {direction} {percent} %',
                    f'shift {direction}',
                    percent,
                    'shift, % of the side',
                    at_input(type='vitplug.Shift', fraction=percent / 100, direction=direction, fill=ZERO),
                    paper=REVIT_SHIFTED.get((axis, percent), ''),
                )

    return conditions


def _revit_table6(columns: Sequence[Column], options: Options) -> Iterator[Condition]:
    for percent in PERCENT:
        yield Condition(
            f'smaller by {percent} %',
            'smaller image',
            percent,
            'loss of each side, %',
            at_input(type='vitplug.Shrink', fraction=percent / 100, fill=ZERO),
            paper=REVIT_SHRUNK[percent],
        )


# --- Refiner ---


def _refiner_table5(columns: Sequence[Column], options: Options) -> Iterator[Condition]:
    check_resizes(columns)
    for ratio, figures in REFINER_FIELDS.items():
        yield Condition(
            f'field calibrated, ratio {ratio:g}',
            'calibrated field',
            ratio,
            'ratio of the crop to the resized short side',
            calibrated(ratio),
            paper=figures,
        )


# --- corruptions ---


def _corruptions(columns: Sequence[Column], options: Options) -> Iterator[Condition]:
    if options.imagenet_c:
        yield from _released(columns, options)
        return
    step_at = at_input if columns[0].library in CLASSIFICATION else after_loading
    for name in corruption_names('all'):
        for severity in options.severities:
            yield Condition(
                f'{name}, severity {severity}',
                name,
                severity,
                'severity',
                step_at(type='vitplug.Corruption', name=name, severity=severity, seed=0),
            )


def _released(columns: Sequence[Column], options: Options) -> Iterator[Condition]:
    """The JPEG files of ImageNet-C, ``CORRUPTION/SEVERITY/CLASS/``."""
    _check_imagenet(columns, '--imagenet-c')
    for name in ALEXNET:
        for severity in options.severities:
            folder = options.imagenet_c / name / str(severity)
            _check_folders(folder, _timm_list('imagenet_synsets.txt'), '--imagenet-c')
            yield Condition(
                f'ImageNet-C {name}, severity {severity}',
                name,
                severity,
                'severity',
                unresized,
                folder=folder,
                clean=None,
            )


# --- what data must have ---


def _timm_list(name: str) -> list[str]:
    return _timm_file(name).split()


def _real_labels() -> list[list[int]]:
    return json.loads(_timm_file('imagenet_real_labels.json'))


def _timm_file(name: str) -> str:
    """A list of classes that timm has.

    Raises:
        ImportError: If timm is missing.
    """
    try:
        return (files('timm.data') / '_info' / name).read_text()
    except ModuleNotFoundError as error:
        raise ImportError(f'the lists of ImageNet classes are in timm ({error}): pip install timm') from error


def _validation_name(number: int) -> str:
    return f'ILSVRC2012_val_{number:08d}.JPEG'


def _image_names(column: Column) -> list[str]:
    infos = map(column.dataset.get_data_info, range(len(column.dataset)))
    return [Path(info.get('img_path', 'no file names')).name for info in infos]


def _check_imagenet(columns: Sequence[Column], what: str) -> None:
    for column in columns:
        classes = column.dataset.metainfo.get('classes') or ()
        if len(classes) != IMAGENET_CLASSES:
            raise ValueError(f"{what}: needs a model of ImageNet's 1000 classes, and {column.label} has {len(classes)}")


def _check_folders(folder: Path, expected: Sequence[str], option: str) -> None:
    """Checks that a folder has exactly the folders of some classes.

    Raises:
        FileNotFoundError: If it is missing, or one of them.
        ValueError: If there are others.
    """
    if not folder.is_dir():
        raise FileNotFoundError(f'{option}: no such folder: {folder}')
    there = {path.name for path in folder.iterdir() if path.is_dir()}
    if missing := sorted(set(expected) - there):
        raise FileNotFoundError(f'{option}: {folder} lacks {len(missing)} folders of classes, such as {missing[0]}')
    if more := sorted(there - set(expected)):
        raise ValueError(
            f'{option}: {folder} has {len(more)} folders that are no classes, such as {more[0]}: remove them'
        )


SUITES: Mapping[str, Suite] = {
    'cb-table6': Suite(
        'CB Table 6: ImageNet-V2 and ReaL',
        CLASSIFICATION,
        _cb_table6,
        (
            'the paper does not say which of the three sets of ImageNet-V2 it used: the rows are the folders '
            'given with --imagenet-v2',
            'ReaL: images without a label are left out; a prediction is right if it is one of the labels',
        ),
    ),
    'cb-table8': Suite(
        'CB Table 8: occlusion, FGSM, ImageNet-A',
        CLASSIFICATION,
        _cb_table8,
        (
            'occlusion: the central half of each side (112 of 224 pixels); zero after the normalisation',
            'FGSM: one step of the sign of the gradient, pixels from 0 to 1, clipped, normalisation inside the model; '
            'the paper states neither epsilon nor its domain',
            'ImageNet-A: the best of its 200 classes; the paper does not say so. The row is there with --imagenet-a',
            'PGD and AutoAttack are in none of the papers',
        ),
    ),
    'cb-table12': Suite(
        'CB Table 12: noise and blur',
        ALL_TASKS,
        _cb_table12,
        (
            'noise and blur act on what the model gets, 0 to 255, before the normalisation; clipped, not rounded',
            'shot noise: Poisson of the 8-bit value times --photons; the paper states no strength, and one photon a '
            'grey level is inferred: its rows of shot noise and of Gaussian noise with sigma 10 are nearly equal',
        ),
    ),
    'revit-table4': Suite(
        'ReViT Table 4: horizontal shifts',
        CLASSIFICATION,
        _shifts('horizontal', 'right', 'left'),
        ('the paper names no direction: right, and left with --directions both; zero after the normalisation',),
    ),
    'revit-table5': Suite(
        'ReViT Table 5: vertical shifts',
        CLASSIFICATION,
        _shifts('vertical', 'down', 'up'),
        ('the paper names no direction: down, and up with --directions both; zero after the normalisation',),
    ),
    'revit-table6': Suite(
        'ReViT Table 6: smaller images',
        CLASSIFICATION,
        _revit_table6,
        ('the paper does not say where the smaller image lies nor how it is resized: centred, bilinear (Pillow)',),
    ),
    'refiner-table5': Suite(
        'Refiner Table 5: receptive field calibration',
        CLASSIFICATION,
        _refiner_table5,
        (
            'short side to floor(size / ratio), bicubic; padding is black, centred; clean is the own test pipeline',
            "the paper's B7-ns-475 is timm's tf_efficientnet_l2.ns_jft_in1k_475",
        ),
    ),
    'corruptions': Suite(
        'Common corruptions',
        ALL_TASKS,
        _corruptions,
        (
            'classification: on what the model gets, as ImageNet-C is; else on the loaded image, as in mmdet',
            'severities in the order and with the names of imagecorruptions',
            "ImageNet-C's files of 224 pixels: cropped at the centre and not resized, as by its authors, for AlexNet's "
            'errors, too; pipelines without a crop, or with one above 224 pixels, resize them as the test images',
        ),
    ),
}
# Suites that need files which not everybody has: `all` has them where these are given.
NEEDS_FILES = {'cb-table6': 'imagenet_v2'}


def choose_suites(names: Sequence[str], columns: Sequence[Column], options: Options) -> dict[str, list[Condition]]:
    """The conditions of some suites; that of the unchanged images is the first.

    Args:
        names: Of :data:`SUITES`, or ``'all'`` for those that the task can have.
        columns: The models.
        options: Of the call.

    Raises:
        ValueError: If the task cannot have a suite, or the call lacks a setting.
        FileNotFoundError: If files are missing.
    """
    library = columns[0].library
    chosen = [name for name in SUITES if name in names]
    if ALL in names:
        chosen = [
            name
            for name, suite in SUITES.items()
            if library in suite.libraries and (name not in NEEDS_FILES or getattr(options, NEEDS_FILES[name]))
        ]
    for name in chosen:
        if library not in SUITES[name].libraries:
            able = ', '.join(other for other, suite in SUITES.items() if library in suite.libraries)
            raise ValueError(f'--suite {name}: is for classifiers, whose labels do not move; here {able} can be run')
    suites = {'clean': [CLEAN]} | {name: list(SUITES[name].conditions(columns, options)) for name in chosen}
    keys = [condition.key for conditions in suites.values() for condition in conditions]
    if twice := sorted({key for key in keys if keys.count(key) > 1}):
        raise ValueError(f'two tests are called {twice[0]}: give folders, and sizes of attacks, that differ')
    return suites


def title_of(name: str, options: Options) -> str:
    """Title of the table of a suite; says of corruptions whether they are those of ImageNet-C."""
    title = SUITES[name].title
    if name != 'corruptions':
        return title
    return f'{title}, ' + (
        "ImageNet-C's released files" if options.imagenet_c else 'computed in memory: not ImageNet-C'
    )
