"""Damages good inputs at random, runs the tools on them and sorts what comes of it.

    python tests/soak/attack.py [--cases 500] [--seed 0] [--jobs 2] [--work-dir DIR] [--out FILE]
    python tests/soak/attack.py --seed 0 --only 17      # this case again; its folder is kept
    python tests/soak/attack.py --match 'checkpoint: '  # only attacks whose names match; --list shows all

Checkpoints, annotations, images, configs, options and command lines are damaged, and trainings are killed, interrupted
or deprived of disk, permissions and files. Each case is drawn from the seed and its number alone. The tools run in
processes forked from this one, which has imported everything, under limits of time and memory. A case is

    code run         code that a data file holds was run
    loss             a file that was there is gone or another one, or a broken checkpoint has its final name
    crash            a signal ended the tool, or its memory went over the limit
    hang             it went over the limit of time
    silently wrong   status 0 and results that are not legitimate (see `attacks.trials.Accept`)
    poor message     a traceback, a status that is explained nowhere, no "error:" line, a message without the file, key
                     or value at fault, more than a dozen lines, or control characters
    named refusal    an error that names the culprit
    handled          status 0 with legitimate results

by comparing all files before and after and the results (weights, predictions, metrics, converted files, tables) with
those of the sound input. What no tool can know is legitimate: a changed bit that leaves finite numbers where there is
no checksum (safetensors, JPEG, JSON), another value that a config or annotation might well have, rounded weights, a
converted or published copy that is true to its source, and a training that starts from a part of a checkpoint.

A line per case goes to `--out`; finished cases are not run again. A number stands for the same case as long as the
attacks are the same. The exit status is 1 if any case is of the first five kinds.
"""

import argparse
import gc
import importlib
import json
import os
import random
import re
import shlex
import shutil
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from soak.attacks.judging import FAILURES, Kind, Observation, judge, last_line, snapshot
from soak.attacks.processes import Limits, Run
from soak.attacks.sandbox import Sandboxes
from soak.attacks.trials import REGISTRY, Registry, Scene

FAMILIES = (
    'checkpoints',
    'images',
    'annotations',
    'configs',
    'command_lines',
    'faults',
    'grids',
)
IMPORTED = (
    'torch._dynamo',
    *(f'{scope}.{part}' for scope in ('mmpretrain', 'mmseg', 'mmdet') for part in ('models', 'datasets', 'evaluation',
                                                                                  'visualization', 'engine')),
    'vitplug.runs.training_commands',
    'vitplug.runs.hooks',
    'vitplug.runs.dataset_check',
    'vitplug.checkpoints.checkpoint_commands',
    'vitplug.ablation.ablate_command',
    'vitplug.ablation.report',
    'vitplug.analysis.config_commands',
)  # fmt: skip
BROKEN = 'broken case'  # of the campaign itself
# How many limits of time a whole case may take: its commands, those of the sound input, and comparing.
MOST_RUNS = 6


@dataclass(frozen=True)
class Campaign:
    """What a case needs to be run.

    Attributes:
        seed: Decides all cases.
        registry: The attacks; case n takes the n-th in the order of the seed, again and again.
        folder: Where the cases' folders are made.
        sandboxes: The sound inputs.
        keep: Whether folders stay of cases that are neither refused nor handled.
    """

    seed: int
    registry: Registry
    folder: Path
    sandboxes: Sandboxes
    keep: bool = False

    @cached_property
    def order(self) -> list[str]:
        return self.registry.order(self.seed)

    def name(self, number: int) -> str:
        """The attack of a case."""
        return self.order[number % len(self.order)]

    def command(self, number: int) -> str:
        return f'python tests/soak/attack.py --seed {self.seed} --only {number}'

    def run(self, number: int) -> dict:
        """Runs a case and returns its record."""
        begin = time.monotonic()
        root = self.folder / f'case_{self.seed}_{number}'
        shutil.rmtree(root, ignore_errors=True)
        record = dict(seed=self.seed, case=number, attack=self.name(number))
        try:
            record |= self._run(number, root)
        except Exception:
            record |= dict(outcome=BROKEN, why=traceback.format_exc())
        if not self.keep and record['outcome'] in (Kind.REFUSED.value, Kind.HANDLED.value):
            shutil.rmtree(root, ignore_errors=True)
        return record | dict(seconds=round(time.monotonic() - begin, 2), repeat=self.command(number))

    def _run(self, number: int, root: Path) -> dict:
        draw = random.Random(f'{self.seed} {number}')
        scene = Scene(root / 'sandbox', draw, self.sandboxes)
        trial = self.registry.attacks[self.name(number)](scene)
        before = snapshot(root)
        runs: list[list[Run]] = []
        for index, step in enumerate(trial.steps):
            runs.append(self.sandboxes.run(step, scene.folder, root / 'streams' / str(index)))
        after = snapshot(root)
        clean = [self.sandboxes.sound(trial.base, line) for line in trial.clean_lines if trial.is_compared]
        verdict = judge(trial, Observation(root, runs, before, after), clean)
        last = runs[-1][-1]
        return dict(
            damage=trial.damage,
            tool=shlex.split(last.line)[0],
            commands=[run.line[:300] for step in runs for run in step],
            statuses=[run.status for step in runs for run in step],
            outcome=verdict.kind.value,
            why=verdict.why[:600],
            message=last_line(last)[:600],
            tool_seconds=round(sum(run.seconds for step in runs for run in step), 2),
        )


def run_cases(campaign: Campaign, numbers: Sequence[int], jobs: int) -> Iterator[dict]:
    """Runs cases, several at a time in forked processes, and yields their records as they end."""
    waiting, running = list(numbers)[::-1], {}
    limit = MOST_RUNS * campaign.sandboxes.limits.seconds
    while waiting or running:
        while waiting and len(running) < jobs:
            number = waiting.pop()
            running[_fork(campaign, number)] = number, time.monotonic()
        time.sleep(0.02)
        for pid, (number, begin) in list(running.items()):
            ended, _ = os.waitpid(pid, os.WNOHANG)
            late = time.monotonic() - begin > limit
            if late and not ended:
                os.kill(pid, 9)
                os.waitpid(pid, 0)
            if ended or late:
                del running[pid]
                yield _record(campaign, number)


def _fork(campaign: Campaign, number: int) -> int:
    _record_file(campaign, number).unlink(missing_ok=True)
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        try:
            record = campaign.run(number)
            _record_file(campaign, number).write_text(json.dumps(record))
        finally:
            os._exit(0)
    return pid


def _record_file(campaign: Campaign, number: int) -> Path:
    return campaign.folder / f'case_{campaign.seed}_{number}.json'


def _record(campaign: Campaign, number: int) -> dict:
    path = _record_file(campaign, number)
    try:
        record = json.loads(path.read_text())
        path.unlink()
    except (OSError, ValueError):
        record = dict(seed=campaign.seed, case=number, attack=campaign.name(number), outcome=BROKEN,
                      why='its process ended without a record', repeat=campaign.command(number))  # fmt: skip
    return record


# --- the report ---


def table(records: Sequence[dict]) -> str:
    """Outcomes by family of attacks."""
    kinds = [*(kind.value for kind in Kind), BROKEN]
    families = sorted({record['attack'].partition(':')[0] for record in records})
    counts = Counter((record['attack'].partition(':')[0], record['outcome']) for record in records)
    rows = [['', 'cases', *kinds]]
    for family in families:
        rows.append([family, *_counted([counts[family, kind] for kind in kinds])])
    rows.append(['all', *_counted([sum(counts[family, kind] for family in families) for kind in kinds])])
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ['  '.join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    return '\n'.join(lines)


def _counted(counts: list[int]) -> list[str]:
    return [str(count) for count in (sum(counts), *counts)]


def is_failure(record: dict) -> bool:
    """Whether a case lets the campaign fail."""
    return record['outcome'] in (BROKEN, *(kind.value for kind in FAILURES))


def report(records: Sequence[dict]) -> str:
    """The table, then every case that is no refusal and not handled, the worst kinds first."""
    ranks = {kind.value: rank for rank, kind in enumerate(Kind)}
    told = [record for record in records if is_failure(record) or record['outcome'] == Kind.POOR.value]
    told.sort(key=lambda record: (ranks.get(record['outcome'], -1), record['attack'], record['case']))
    lines = [table(records), '']
    for record in told:
        commands = '; '.join(record.get('commands', ()))
        lines += [f'{record["outcome"]}: {record["attack"]} ({record.get("damage", "")})'[:400],
                  f'    {commands[:300]} -> {record.get("statuses")}',
                  f'    {record["why"].strip()[-500:]}',
                  *([f'    {record["message"][:300]}'] if 'message' in record else []),
                  f'    {record["repeat"]}']  # fmt: skip
    return '\n'.join(lines)


# --- the program ---


def warm_up() -> None:
    """Imports all that the tools import, so that no forked process has to, and leaves no thread running."""
    import cv2
    import torch
    from mmengine.runner import runner

    torch.set_num_threads(1)
    cv2.setNumThreads(0)
    for name in IMPORTED:
        importlib.import_module(name)
    runner.collect_env = dict  # a second of compilers' version numbers
    gc.collect()
    gc.freeze()


def finished(path: Path, campaign: Campaign) -> dict[int, dict]:
    """The records of earlier calls with this seed, by number."""
    lines = path.read_text().splitlines() if path.exists() else []
    records = [json.loads(line) for line in lines]
    return {
        record['case']: record
        for record in records
        if record['seed'] == campaign.seed and record['attack'] == campaign.name(record['case'])
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--cases', type=int, default=500)
    parser.add_argument('--seed', type=int, default=0)
    parser.add_argument('--jobs', type=int, default=2, help='cases at a time')
    parser.add_argument('--only', type=int, nargs='+', metavar='N', help='run these cases again and keep their folders')
    parser.add_argument('--match', default='', metavar='REGEX', help='only attacks whose name matches')
    parser.add_argument('--list', action='store_true', help='show the names of all attacks')
    parser.add_argument('--work-dir', type=Path, default=Path('work_dirs/attack'))
    parser.add_argument('--out', type=Path, help='a line of JSON per case (default cases.jsonl in the work dir)')
    parser.add_argument('--keep', action='store_true', help='keep the folders of all cases')
    parser.add_argument('--seconds', type=float, default=60, help='limit of time per command')
    args = parser.parse_args()
    for family in FAMILIES:
        importlib.import_module(f'soak.attacks.{family}')
    if args.list:
        print('\n'.join(sorted(REGISTRY.attacks)))
        return 0
    folder = args.work_dir.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    out = args.out or folder / 'cases.jsonl'
    warm_up()
    sandboxes = Sandboxes(folder / f'sound_{os.getpid()}', limits=Limits(seconds=args.seconds))
    campaign = Campaign(args.seed, REGISTRY, folder, sandboxes, args.keep or bool(args.only))
    numbers = args.only or [n for n in range(args.cases) if re.search(args.match, campaign.name(n))]
    records = {} if args.only else finished(out, campaign)
    records = {number: record for number, record in records.items() if number in numbers}
    begin = time.monotonic()
    try:
        sandboxes.prepare()
        for record in run_cases(campaign, [number for number in numbers if number not in records], args.jobs):
            records[record['case']] = record
            if not args.only:
                with out.open('a') as file:
                    file.write(json.dumps(record) + '\n')
            print(f'{len(records):4}/{len(numbers)} {record["case"]:4} {record["outcome"]:14} {record["attack"]}',
                  flush=True)  # fmt: skip
    finally:
        shutil.rmtree(sandboxes.folder, ignore_errors=True)
    print(f'\n{report(list(records.values()))}\n\n{len(records)} cases, {time.monotonic() - begin:.0f} s')
    return int(any(map(is_failure, records.values())))


if __name__ == '__main__':
    sys.exit(main())
