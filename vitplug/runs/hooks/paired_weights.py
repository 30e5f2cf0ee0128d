"""Gives a model with plugs the initial weights that it would have without them."""

from mmengine.hooks import Hook
from mmengine.registry import MODELS
from mmengine.runner.utils import set_random_seed
from torch import Tensor

from vitplug.checkpoints.through_mmengine import bare_model
from vitplug.config.parts import model_settings, without
from vitplug.registry import HOOKS


@HOOKS.register_module()
class PairedWeightsHook(Hook):
    """Starts trainings of one seed with the same host weights, whatever plugs their backbones have.

    A plug that draws its own weights (Refiner, SqueezeExcite, RelPosMlp ...) moves the generator, so the host's layers
    behind it would start with other weights than without it, and a comparison with the plain model would hold the
    difference of two initialisations as well. This hook builds the model without plugs from the same seed and takes
    over its initial weights, where name and shape are the same; a plug's own weights stay as they were drawn.

    A checkpoint that the training starts from, or goes on from, is loaded after that and wins.
    """

    # After EMAHook, whose copy of the model must not have the patched method.
    priority = 'LOWEST'

    def before_run(self, runner) -> None:
        """Lets the runner's initialisation of weights end with the paired ones."""
        model = getattr(runner, 'whole', None) or bare_model(runner.model)  # a sharded one is initialised whole
        initialise = model.init_weights

        def initialise_paired() -> None:
            initialise()
            state, plain = model.state_dict(), host_weights(runner)
            common = {name: w for name, w in plain.items() if name in state and state[name].shape == w.shape}
            model.load_state_dict(common, strict=False)
            runner.logger.info(f'{len(common)} weights of the model are those that it has without plugs')

        model.init_weights = initialise_paired

    def before_train(self, runner) -> None:
        """Takes the method back."""
        vars(bare_model(runner.model)).pop('init_weights', None)


def host_weights(runner) -> dict[str, Tensor]:
    """The initial weights of the runner's model without its plugs, drawn as a new training would draw them."""
    level = runner.logger.level
    runner.logger.setLevel('ERROR')  # mmengine logs a line for every weight
    set_random_seed(runner.seed)
    reference = MODELS.build(without(model_settings(runner.cfg), 'plugs'))
    reference.to(next(bare_model(runner.model).parameters()).device).init_weights()
    runner.logger.setLevel(level)
    return reference.state_dict()
