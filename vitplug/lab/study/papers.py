"""The papers' tables and figures by name: ``vitplug study ... --paper gab-figure4``."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import yaml


@dataclass(frozen=True)
class Paper:
    """A table or a figure, an entry of `papers.yml`.

    Attributes:
        title: What it shows.
        measures, conditions: By name.
        num: Images; None for all.
        figures: The paper's numbers by condition, labelled.
        choices: What the paper leaves open, and how it is done here.
    """

    title: str
    measures: list[str]
    conditions: list[str] = field(default_factory=list)
    num: int | None = None
    figures: Mapping[str, str] = field(default_factory=dict)
    choices: list[str] = field(default_factory=list)


PAPERS: Mapping[str, Paper] = {
    name: Paper(**entry)
    for name, entry in yaml.safe_load(Path(__file__).with_suffix('.yml').read_text('utf-8')).items()
}
