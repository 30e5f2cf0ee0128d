"""Pictures of effective receptive fields and of position biases, with the fitted Gaussians."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from vitplug.analysis.study import drawing

from .results import Result


def fields(results: Sequence[Result], num_images: int) -> Figure:
    title = f'effective receptive field, {num_images} images; ellipses at 1 and 2 sigma'
    fields = {_heading(result): result.erf for result in results}
    return drawing.receptive_fields(title, fields, {_heading(result): result.fit for result in results})


def _heading(result: Result) -> str:
    """Names a panel; a map that says nothing is called so."""
    return result.field.label + (' (untrained, rounding noise)' if result.warning else '')


def biases(results: Sequence[Result]) -> Figure:
    """The position biases of at most 12 evenly spaced blocks of each model."""
    shown = [(result, block) for result in results for block in drawing.some(list(result.biases))]
    title = 'position bias of the central query, mean over heads; ellipses at 1 and 2 sigma'
    figure, axes = drawing.panels(len(shown), title, columns=4, inches=(2.6, 2.7))
    for ax, (result, block) in zip(axes, shown, strict=True):
        fit = result.bias_fits[block]
        ax.imshow(result.biases[block], cmap=drawing.HEAT)
        drawing.outline(ax, fit)
        caption = drawing.fit_text(fit)
        ax.set_title(f'{result.field.label}, block {block}\n{caption}', fontsize=8)
        ax.set_xlabel('tokens', fontsize=8)
    return figure
