"""The contract of somebody's own plug: ``pytest tests/test_contract.py --plug module:Class``.

Hosts that refuse the plug are skipped, each with its reason.
"""

import importlib
import logging

import cases
import pytest


class ContractOfPlug:
    """A plugin of pytest that runs the contract on one plug in place of vitplug's own.

    Args:
        path: Module and class, such as ``my_plugs:MixedHeads``.

    Raises:
        pytest.UsageError: If every host refuses the plug.
    """

    def __init__(self, path: str):
        module, _, name = path.partition(':')
        plug = getattr(importlib.import_module(module), name)
        cases.HOSTS = cases.HOSTS | cases.EVEN_HOSTS
        cases.PLUGS, cases.PREFIX_PLUGS, cases.REFUSED = {name: [dict(type=plug)]}, {}, {}
        hosts = cases.HOSTS | cases.TOKEN_HOSTS
        logging.disable()
        self.refusals = {host: reason for host, build in hosts.items() if (reason := refusal(build, plug))}
        logging.disable(logging.NOTSET)
        if len(self.refusals) == len(hosts):
            raise pytest.UsageError(f'--plug {path}: every host refuses it: {self.refusals}')

    def pytest_collection_modifyitems(self, items):
        for item in items:
            host = item.callspec.params.get('host') if hasattr(item, 'callspec') else None
            if host in self.refusals:
                item.add_marker(pytest.mark.skip(reason=f'{host}: {self.refusals[host]}'))

    def pytest_report_header(self):
        return [f'{host} refuses the plug: {reason}' for host, reason in self.refusals.items()]


def refusal(build, plug: type) -> str | None:
    """Why a host or the plug refuses to be built; any other error is left to the tests."""
    try:
        build(plugs=[dict(type=plug)])
    except ValueError as error:
        return ' '.join(str(error).split())
    except Exception:
        return None
