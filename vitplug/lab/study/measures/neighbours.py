"""What simple classifiers read from frozen features: nearest neighbours and a linear head, of images and of patches.

The bank is of training images, through the test pipeline. Shape suffixes: N samples, T patches, D width, C classes.
"""

from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from vitplug.statistics.images import Arrays

from ..measure import Measure, Run, Seen, measure, together
from .fields import last_map
from .scores import areas_of, check, mean_iou, void_label

# DINO's: neighbours, and the temperature of their weights.
VOTERS, TEMPERATURE = 20, 0.07
# Patches of an image that the bank of dense features takes, drawn by the image.
PATCHES = 64
# Inverse strengths of the penalty of the linear head, chosen by cross-validation.
STRENGTHS, FOLDS = np.logspace(-4, 2, 7), 5


# --- features and targets ---


@torch.no_grad()
def _features(seen: Seen) -> Tensor:
    """The last map, ``(D, h, w)``."""
    return last_map(seen.run.model, seen.inputs)[0].float().cpu()


def _image(seen: Seen) -> Arrays:
    """The mean of the patch tokens, and the class as one of zeros and ones."""
    check(seen.run, 'mmpretrain')
    target_1C = F.one_hot(seen.batch['data_samples'][0].gt_label, len(seen.run.dataset.metainfo['classes'])).float()
    return {'features': _features(seen).flatten(1).mean(1)[None].numpy(), 'targets': target_1C.numpy()}


def _patches(seen: Seen) -> Arrays:
    """Some patch features ``(t, D)``, and the shares of the classes in each of them ``(t, C)``."""
    check(seen.run, 'mmseg')
    features_Dhw = _features(seen)
    shares_TC = patch_shares(label_map(seen), tuple(features_Dhw.shape[1:]), seen.run)
    known = np.flatnonzero(shares_TC.sum(1) > 0)  # patches that are all void teach nothing
    if len(known) > PATCHES:
        known = np.sort(np.random.default_rng(seen.index).choice(known, PATCHES, replace=False))
    return {'features': features_Dhw.flatten(1).T[known].numpy(), 'targets': shares_TC[known]}


def label_map(seen: Seen) -> Tensor:
    """The label map, of the size of the padded input: padding is void."""
    label = seen.batch['data_samples'][0].gt_sem_seg.data[0]
    height, width = seen.batch['inputs'][0].shape[-2:]
    grown = F.interpolate(label[None, None].float(), (height, width), mode='nearest-exact')[0, 0].long()
    return F.pad(grown, (0, seen.size[1] - width, 0, seen.size[0] - height), value=void_label(seen.run))


def patch_shares(label_HW: Tensor, grid: tuple[int, int], run: Run) -> np.ndarray:
    """The share of each patch's pixels in each class ``(T, C)``, patches in reading order; void is in none."""
    classes = torch.arange(len(run.dataset.metainfo['classes']))
    of_class_CHW = (label_HW == classes[:, None, None]) & (label_HW != void_label(run))
    return F.adaptive_avg_pool2d(of_class_CHW.float(), grid).flatten(1).T.numpy()


# --- classifiers of scikit-learn ---


def votes(features_ND: np.ndarray, targets_NC: np.ndarray):
    """Predicts the mean target of the nearest neighbours by cosine, weighted by exp(similarity / temperature)."""
    from sklearn.neighbors import KNeighborsRegressor

    count = min(VOTERS, len(features_ND))
    weighted = KNeighborsRegressor(count, weights=lambda distances: np.exp(-distances / TEMPERATURE), metric='cosine')
    return weighted.fit(features_ND, targets_NC)


def head(features_ND: np.ndarray, targets_NC: np.ndarray):
    """Logistic regression on standardised features, its penalty chosen by cross-validation."""
    from sklearn.linear_model import LogisticRegressionCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    labels = targets_NC.argmax(1)
    folds = min(FOLDS, np.unique(labels, return_counts=True)[1].min())
    if folds < 2:
        raise ValueError('linear: a class has one image in the bank, which cannot be validated: raise --bank')
    chosen = LogisticRegressionCV(Cs=STRENGTHS, cv=folds, max_iter=1000)
    return make_pipeline(StandardScaler(), chosen).fit(features_ND, labels)


def _predicted(run: Run, learn: Callable, features_ND: np.ndarray) -> np.ndarray:
    """What a classifier says of features, learned once from those of the training images."""
    if learn not in run.cache:
        bank = (np.concatenate([unit[name] for unit in run.cache['bank']]) for name in ('features', 'targets'))
        run.cache[learn] = learn(*bank)
    return run.cache[learn].predict(features_ND)


OF_IMAGES = dict(bank=Measure('bank of images', 'Features of training images', '', '', _image))
OF_PATCHES = dict(bank=Measure('bank of patches', 'Features of training images', '', '', _patches))


@measure('points', 'DINO (Caron et al. 2021)', **OF_IMAGES)
def knn(seen: Seen) -> Arrays:
    """Top-1 of the votes of 20 neighbours by cosine, weighted by exp(similarity / 0.07), of the mean patch tokens of
    training images."""
    one = _image(seen)
    found = _predicted(seen.run, votes, one['features']).argmax()
    return {'top-1': np.array(100.0 * (found == one['targets'].argmax()))}


@measure('points', 'scikit-learn; its penalty by cross-validation over training images', **OF_IMAGES)
def linear(seen: Seen) -> Arrays:
    """Top-1 of a logistic regression on the standardised mean patch tokens of training images."""
    one = _image(seen)
    [found] = _predicted(seen.run, head, one['features'])
    return {'top-1': np.array(100.0 * (found == one['targets'].argmax()))}


@measure('points', 'Hummingbird (Balazevic 2023); DINO for the votes', estimate=together(mean_iou), **OF_PATCHES)
def dense_knn(seen: Seen) -> Arrays:
    """mIoU of the votes of 20 neighbours by cosine, weighted by exp(similarity / 0.07), of up to 64 patches of each
    training image, enlarged to the label map as mmseg does with the logits of a head."""
    features_Dhw = _features(seen)
    scores_TC = torch.from_numpy(_predicted(seen.run, votes, features_Dhw.flatten(1).T.numpy()))
    maps = scores_TC.T.unflatten(1, tuple(features_Dhw.shape[1:]))[None]
    height, width = seen.batch['inputs'][0].shape[-2:]
    maps = F.interpolate(maps, seen.size, mode='bilinear', align_corners=False)[..., :height, :width]
    label = seen.batch['data_samples'][0].gt_sem_seg.data[0].long()
    predicted = F.interpolate(maps, tuple(label.shape), mode='bilinear', align_corners=False)[0].argmax(0)
    return areas_of(seen.run, predicted, label)
