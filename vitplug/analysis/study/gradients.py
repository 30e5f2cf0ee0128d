"""Measures that need gradients, each with a forward and a backward of its own."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from vitplug.analysis.measures.gaussian_fit import fit_gaussian
from vitplug.analysis.measures.grad_cam import AT, grad_cams
from vitplug.analysis.measures.receptive_field import input_gradient
from vitplug.statistics.images import Arrays, Estimate, jackknife, without_groups

from . import drawing
from .attention import HeatPicture, heat_rows
from .learned import FITTED
from .loaded import Loaded
from .measure import Measure, Recorded, Shown, of_one_size, of_other_sizes, sizes_of
from .subject import Subject


class GradCAM(HeatPicture):
    name = 'grad_cam'
    title = 'Grad-CAM'
    definition = (
        f'ReLU of the tokens at the {AT["attn"]}, weighed by the mean gradient of a score: the logit of the predicted '
        "class, the logits of the most frequent class's pixels, or the score of the first box; of the last two blocks "
        'that it depends on'
    )
    unit = 'score'
    source = 'ReViT, Fig. 8; Selvaraju et al. 2017'
    needs = 'attention'
    BLOCKS = 2

    def why_not(self, subject: Subject) -> str:
        return '' if subject.layers_with('attn') else 'no block has an attention branch'

    def observe(self, subject: Subject, image: Loaded, recorded: Recorded) -> Arrays:
        heats, target = {}, ''
        try:
            maps = grad_cams(subject.model, image.inputs)
            for layer in sorted(maps)[-self.BLOCKS :]:
                target = maps[layer].targets[0]
                heats[f'block {layer}'] = maps[layer].on_image()[0].float().cpu().numpy()
        except ValueError as error:  # no box in the image, say: the picture says so
            target = str(error)
        return dict(picture=image.picture, target=np.array(target), **heats)

    def draw(self, shown: Sequence[Shown]) -> Figure:
        return drawing.heat_over_images(f'{self.title}, {AT["attn"]}', heat_rows(shown))


class ReceptiveField(Measure):
    name = 'erf'
    title = 'Effective receptive field of the central token'
    definition = (
        'Gradient of the central token of the last map, mean over channels, to the normalised image, mean over its '
        'channels, rectified, averaged over images of the most frequent size; and the Gaussian fitted to it: its '
        'standard deviations and the share of the variance that it explains'
    )
    unit = 'pixels; R²: share'
    source = 'Gaussian Attention Bias, Sec. 3; fits of receptive fields: its supplement'
    needs = 'a map as output'
    axes = ()
    FIELD = 'field'

    def why_not(self, subject: Subject) -> str:
        return '' if subject.is_plugged else "its backbone is not one of vitplug's"

    def left_out(self, subject: Subject) -> str:
        return of_other_sizes(sizes_of([subject]))

    def units(self, subject: Subject) -> list[Sequence[int]]:
        return [[index] for index in of_one_size(sizes_of([subject]))]

    def observe(self, subject: Subject, image: Loaded, recorded: Recorded) -> Arrays:
        return {self.FIELD: input_gradient(subject.backbone, image.inputs).float().cpu().numpy()}

    def estimate(self, units: Sequence[Arrays], images: int) -> dict[str, Estimate]:
        return jackknife(self._fit(units), [self._fit(left) for left in without_groups(units)], images)

    def _fit(self, units: Sequence[Arrays]) -> Arrays:
        fit = fit_gaussian(self._mean(units))
        return {value: np.array(getattr(fit, name)) for value, name in FITTED.items()}

    def _mean(self, units: Sequence[Arrays]) -> np.ndarray:
        mean = np.mean([unit[self.FIELD] for unit in units], 0, dtype=np.float64)
        return mean / max(mean.sum(), np.finfo(float).tiny)

    def draw(self, shown: Sequence[Shown]) -> Figure:
        fields = {one.label: self._mean(one.units) for one in shown}
        return drawing.receptive_fields(
            self.title, fields, {name: fit_gaussian(field) for name, field in fields.items()}
        )


GRADIENTS = (ReceptiveField(), GradCAM())
