"""The contract of somebody's own plug: ``pytest tests/test_contract.py --plug module:Class``.

Hosts that refuse the plug are skipped with their reason, and a table by host follows the results.
"""

import importlib
import inspect
import logging
import warnings
from collections import Counter
from contextlib import contextmanager

import cases
import pytest

from vitplug.plugs import Plug

OUTCOMES = ('passed', 'failed', 'skipped')


class ContractOfPlug:
    """A plugin of pytest that runs the contract on one plug in place of vitplug's own.

    Args:
        path: Module and class, such as ``my_plugs:MixedHeads``; a dot in place of the colon does, too.

    Raises:
        pytest.UsageError: If there is no such plug.
    """

    def __init__(self, path: str):
        plug = _plug_class(path)
        self.name = plug.__name__
        cases.HOSTS = cases.HOSTS | cases.EVEN_HOSTS
        cases.PLUGS, cases.PREFIX_PLUGS, cases.REFUSED = {self.name: [dict(type=plug)]}, {}, {}
        hosts = cases.HOSTS | cases.TOKEN_HOSTS
        with warnings.catch_warnings(), _no_log():
            warnings.simplefilter('ignore')
            self.refusals = {host: reason for host, build in hosts.items() if (reason := self.refusal(build))}
        self.counts = {host: Counter() for host in hosts}

    def refusal(self, build) -> str | None:
        """Why a host or the plug refuses to be built; any other error is left to the tests."""
        try:
            build(plugs=cases.PLUGS[self.name])
        except ValueError as error:
            return ' '.join(str(error).split())
        except Exception:
            return None

    def pytest_collection_modifyitems(self, items):
        for item in items:
            host = item.callspec.params.get('host') if hasattr(item, 'callspec') else None
            if host in self.counts:
                item.user_properties.append(('host', host))  # reaches the report from workers of xdist, too
            if host in self.refusals:
                item.add_marker(pytest.mark.skip(reason=f'{host}: {self.refusals[host]}'))

    def pytest_runtest_logreport(self, report):
        host = dict(report.user_properties).get('host')
        if host and (report.when == 'call' or report.outcome != 'passed'):
            self.counts[host][report.outcome] += 1

    def pytest_sessionfinish(self, session):
        """A plug that no host takes has passed nothing."""
        if len(self.refusals) == len(self.counts) and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter):
        terminalreporter.section(f'{self.name} by host')
        width = max(map(len, self.counts))
        terminalreporter.line(f'{"host":{width}}' + ''.join(f'{outcome:>9}' for outcome in OUTCOMES))
        for host, counts in self.counts.items():
            numbers = ''.join(f'{counts[outcome]:9}' for outcome in OUTCOMES)
            reason = f'  refused: {self.refusals[host]}' if host in self.refusals else ''
            terminalreporter.line(f'{host:{width}}{numbers}{reason}')
        if len(self.refusals) == len(self.counts):
            terminalreporter.line(f'{self.name} was not tested: every host refuses it', red=True)


@contextmanager
def _no_log():
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


def _plug_class(path: str) -> type[Plug]:
    module, _, name = path.rpartition(':' if ':' in path else '.')
    try:
        plug = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise pytest.UsageError(
            f'--plug {path}: {error}; expected module:Class, such as my_plugs:MixedHeads'
        ) from error
    if not inspect.isclass(plug) or not issubclass(plug, Plug):
        raise pytest.UsageError(f'--plug {path}: {name} is no subclass of vitplug.plugs.Plug')
    return plug
