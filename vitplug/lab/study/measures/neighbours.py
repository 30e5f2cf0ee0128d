"""What simple classifiers read from frozen features: nearest neighbours and a linear head, of images and of patches.

The bank is of training images, through the test pipeline. Shape suffixes: N samples, T patches, D width, C classes.
"""

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from vitplug.statistics.images import Arrays

from ..measure import Measure, Run, Seen, measure, together
from .fields import feature_map, map_of
from .scores import areas_of, mean_iou, void_label

# DINO's: neighbours, and the temperature of their weights.
NEIGHBOURS_OF_VOTE, TEMPERATURE = 20, 0.07
# Patches of an image that the bank of dense features takes, drawn by the image.
PATCHES = 64
# Inverse strengths of the penalty of the linear head, chosen by cross-validation.
STRENGTHS, FOLDS = np.logspace(-4, 2, 7), 5
QUERIES = 1024


# --- features ---


@torch.no_grad()
def _image(seen: Seen) -> Arrays:
    """The mean of the patch tokens, and the class."""
    feature_D = map_of(feature_map(seen.run), seen.inputs)[0].flatten(1).mean(1)
    label = seen.batch['data_samples'][0].gt_label
    if label.numel() != 1:
        raise ValueError(f'image {seen.index} has {label.numel()} classes: one for each image is expected')
    return {'features': feature_D.float().cpu().numpy(), 'label': np.array(int(label))}


@torch.no_grad()
def _patches(seen: Seen) -> Arrays:
    """Some patch features ``(t, D)``, and the shares of the classes in each of them ``(t, C)``."""
    features_Dhw = map_of(feature_map(seen.run), seen.inputs)[0]
    shares_TC = patch_shares(label_map(seen), seen.size, tuple(features_Dhw.shape[1:]), seen.run)
    known = np.flatnonzero(shares_TC.sum(1) > 0)  # patches that are all void teach nothing
    if len(known) > PATCHES:
        known = np.sort(np.random.default_rng(seen.index).choice(known, PATCHES, replace=False))
    return {
        'features': features_Dhw.flatten(1).T[known].float().cpu().numpy(),
        'shares': shares_TC[known].astype(np.float32),
    }


def label_map(seen: Seen) -> Tensor:
    """The label map, of the size of the padded input: padding is void."""
    label = seen.batch['data_samples'][0].gt_sem_seg.data[0]
    height, width = seen.batch['inputs'][0].shape[-2:]
    grown = F.interpolate(label[None, None].float(), (height, width), mode='nearest-exact')[0, 0].long()
    return F.pad(grown, (0, seen.size[1] - width, 0, seen.size[0] - height), value=void_label(seen.run))


def patch_shares(label_HW: Tensor, size: tuple[int, int], grid: tuple[int, int], run: Run) -> np.ndarray:
    """The share of each patch's pixels in each class ``(T, C)``, patches in reading order; void is in none."""
    classes, count = len(run.dataset.metainfo['classes']), grid[0] * grid[1]
    rows, columns = (torch.arange(side) * cells // side for side, cells in zip(size, grid, strict=True))
    patch_HW = rows[:, None] * grid[1] + columns
    known = (label_HW >= 0) & (label_HW < classes) & (label_HW != void_label(run))
    hits = torch.bincount(patch_HW[known] * classes + label_HW[known], minlength=count * classes)
    pixels = torch.bincount(patch_HW.flatten(), minlength=count)
    return (hits.reshape(count, classes) / pixels[:, None]).numpy()


# --- what votes ---


def votes(queries_ND: Tensor, bank_ND: Tensor, targets_NC: Tensor) -> Tensor:
    """Votes ``(N, C)`` of the nearest neighbours by cosine similarity, weighted by exp(similarity / temperature)."""
    bank_ND, chunks = F.normalize(bank_ND, dim=-1), []
    k = min(NEIGHBOURS_OF_VOTE, len(bank_ND))
    for part_ND in F.normalize(queries_ND, dim=-1).split(QUERIES):
        similarity_NK, index_NK = (part_ND @ bank_ND.T).topk(k, dim=1)
        weights_NK = (similarity_NK / TEMPERATURE).softmax(dim=1)
        chunks.append(torch.einsum('nk,nkc->nc', weights_NK, targets_NC[index_NK]))
    return torch.cat(chunks)


def _bank(run: Run) -> tuple[Tensor, Tensor]:
    """Features and targets of the training images."""
    if 'joined bank' not in run.cache:
        units, classes = run.cache['bank'], len(run.dataset.metainfo['classes'])
        if 'label' in units[0]:
            features = np.stack([unit['features'] for unit in units])
            targets = F.one_hot(torch.tensor([int(unit['label']) for unit in units]), classes).float()
        else:
            features = np.concatenate([unit['features'] for unit in units])
            targets = torch.from_numpy(np.concatenate([unit['shares'] for unit in units]))
        run.cache['joined bank'] = torch.from_numpy(features), targets
    return run.cache['joined bank']


def _fitted(features_ND: Tensor, targets_NC: Tensor):
    """scikit-learn's logistic regression on standardised features, its penalty chosen by cross-validation."""
    from sklearn.linear_model import LogisticRegressionCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    labels = targets_NC.argmax(1).numpy()
    folds = int(min(FOLDS, np.bincount(labels)[np.unique(labels)].min()))
    if folds < 2 or len(np.unique(labels)) < 2:
        raise ValueError('linear: every class of the training images needs two of them or more: raise --bank')
    head = LogisticRegressionCV(Cs=STRENGTHS, cv=folds, max_iter=1000)
    return make_pipeline(StandardScaler(), head).fit(features_ND.numpy(), labels)


def _of(library: str):
    def why_not(run: Run) -> str:
        if run.library != library:
            return f'it is of {library}, and the model of {run.library}'
        return '' if run.cfg.get('train_dataloader') else 'its config has no train_dataloader to learn from'

    return why_not


OF_IMAGES, OF_PATCHES = (
    dict(bank=Measure(f'bank of {what}', 'Features of training images', '', '', observe), why_not=_of(of), slow=True)
    for what, observe, of in (('images', _image, 'mmpretrain'), ('patches', _patches, 'mmseg'))
)


def _right(found: int, one: Arrays) -> Arrays:
    return {'top-1': np.array(100.0 * (found == int(one['label'])))}


@measure('points', 'DINO (Caron et al. 2021)', **OF_IMAGES)
def knn(seen: Seen) -> Arrays:
    """Top-1 of the votes of 20 neighbours by cosine, weighted by exp(similarity / 0.07), of the mean patch tokens of
    training images."""
    one = _image(seen)
    return _right(int(votes(torch.from_numpy(one['features'])[None], *_bank(seen.run)).argmax()), one)


@measure('points', 'scikit-learn; its penalty by cross-validation over training images', **OF_IMAGES)
def linear(seen: Seen) -> Arrays:
    """Top-1 of a logistic regression on the standardised mean patch tokens of training images."""
    one = _image(seen)
    if 'head' not in seen.run.cache:
        seen.run.cache['head'] = _fitted(*_bank(seen.run))
    return _right(int(seen.run.cache['head'].predict(one['features'][None])[0]), one)


@measure('points', 'Hummingbird (Balazevic et al. 2023); DINO for the votes', estimate=together(mean_iou), **OF_PATCHES)
@torch.no_grad()
def dense_knn(seen: Seen) -> Arrays:
    """mIoU of the votes of 20 neighbours by cosine, weighted by exp(similarity / 0.07), of up to 64 patches of each
    training image."""
    features_Dhw = map_of(feature_map(seen.run), seen.inputs)[0]
    scores_TC = votes(features_Dhw.flatten(1).T.float().cpu(), *_bank(seen.run))
    maps = scores_TC.T.unflatten(1, tuple(features_Dhw.shape[1:]))[None]
    # Enlarged to the label map, as mmseg does with the logits of a head.
    height, width = seen.batch['inputs'][0].shape[-2:]
    maps = F.interpolate(maps, seen.size, mode='bilinear', align_corners=False)[..., :height, :width]
    label = seen.batch['data_samples'][0].gt_sem_seg.data[0].long()
    predicted = F.interpolate(maps, tuple(label.shape), mode='bilinear', align_corners=False)[0].argmax(0)
    return areas_of(seen.run, predicted, label)


NEIGHBOURS = (knn, linear, dense_knn)
