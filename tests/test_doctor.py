"""The doctor names what is broken and how to mend it."""

import subprocess
import sys

from vitplug import doctor


def test_this_stack_is_in_order(capsys):
    assert doctor.main() == 0
    assert 'the stack is in order' in capsys.readouterr().out


def test_missing_ops_are_named_with_their_remedy():
    code = (
        'import sys\n'
        "sys.modules['mmcv._ext'] = None\n"
        "for name in [n for n in sys.modules if n.startswith('mmcv')]: del sys.modules[name]\n"
        "sys.modules['mmcv._ext'] = None\n"
        'from vitplug import doctor\n'
        'sys.exit(doctor.main())\n'
    )
    result = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True)
    assert result.returncode == 1
    broken = [line.split()[1] for line in result.stdout.splitlines() if line.startswith('  BROKEN')]
    assert 'mmcv.ops' in broken and 'torch' not in broken
    assert '--no-build-isolation --no-cache-dir' in result.stdout
    assert 'the stack is not in order' in result.stdout


def test_a_missing_package_is_named(monkeypatch, capsys):
    monkeypatch.setattr(doctor, 'NEEDS', (doctor.Need('no_such_package', 'tests', 'pip install it'),))
    assert doctor.main() == 1
    assert 'no_such_package' in (out := capsys.readouterr().out) and 'mend it: pip install it' in out
