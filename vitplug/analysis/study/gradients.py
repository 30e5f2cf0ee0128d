"""Measures that need gradients, each with a forward and a backward of its own."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from vitplug.analysis.measures.grad_cam import AT, grad_cams

from . import drawing
from .attention import FEW, heat_rows
from .images import Loaded
from .measure import Found, Measure, Shown, evenly_spaced
from .statistics import Arrays, Estimate
from .subject import Subject


class GradCAM(Measure):
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
    axes = ()
    BLOCKS = 2

    def why_not(self, subject: Subject) -> str:
        return '' if subject.layers_with('attn') else 'no block has an attention branch'

    def units(self, num_images: int) -> list[Sequence[int]]:
        return evenly_spaced(num_images, FEW)

    def observe(self, subject: Subject, image: Loaded, found: Found) -> Arrays:
        heats, target = {}, ''
        try:
            maps = grad_cams(subject.model, image.inputs)
            for layer in sorted(maps)[-self.BLOCKS :]:
                target = maps[layer].targets[0]
                heats[f'block {layer}'] = maps[layer].on_image()[0].float().cpu().numpy()
        except ValueError as error:  # no box in the image, say: the picture says so
            target = str(error)
        return dict(picture=image.picture, target=np.array(target), **heats)

    def estimate(self, units: Sequence[Arrays], images: int) -> dict[str, Estimate]:
        return {}

    def draw(self, shown: Sequence[Shown]) -> Figure:
        return drawing.heat_over_images(f'{self.title}, {AT["attn"]}', heat_rows(shown))


GRADIENTS = (GradCAM(),)
