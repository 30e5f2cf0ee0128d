"""The measures by name: a new one is one more entry of a table here, or a ``module:function`` of one's own."""

import importlib
import inspect
from collections.abc import Mapping, Sequence

from vitplug.compat import replace

from ..conditions import advice_for, own
from ..measure import Measure
from ..store import digest
from .attention import ATTENTION
from .gradients import GRADIENTS
from .learned import LEARNED
from .neighbours import NEIGHBOURS
from .pictures import PICTURES
from .scores import SCORES, SCORES_OF
from .tokens import TOKENS

MEASURES: Mapping[str, Measure] = {
    measure.name: measure for measure in (*SCORES, *ATTENTION, *TOKENS, *GRADIENTS, *LEARNED, *NEIGHBOURS, *PICTURES)
}
SCORE = 'score'


def measures_of(names: Sequence[str], library: str) -> list[Measure]:
    """The measures of a command line.

    Args:
        names: Names, ``score`` for the score of the task, ``all`` for those that are not slow, or ``module:function``.
        library: Name of the models' library.

    Raises:
        ValueError: If a name is unknown; says the closest one.
    """
    chosen: list[Measure] = []
    for name in names:
        if name == 'all':
            chosen += [m for m in MEASURES.values() if not m.slow and not m.predicts] + [MEASURES[SCORES_OF[library]]]
        elif name == SCORE:
            chosen.append(MEASURES[SCORES_OF[library]])
        elif name in MEASURES:
            chosen.append(MEASURES[name])
        elif ':' in name:
            made = own(name, '--measures', MEASURES)()
            source = digest(inspect.getsource(importlib.import_module(name.partition(':')[0])))
            chosen += [replace(one, code=source) for one in (made if isinstance(made, list) else [made])]
        else:
            raise ValueError(f'--measures {name}: there is none: {advice_for(name, [*MEASURES, SCORE, "all"])}')
    return list({measure.name: measure for measure in chosen}.values())
