"""Count parameters and MACs: python tools/analysis_tools/get_flops.py CONFIG [--shape HEIGHT WIDTH] [--batch N]"""

from vitplug.process import prepare

if __name__ == '__main__':
    prepare()  # before torch is loaded

    from vitplug.analysis.config_commands import get_flops

    get_flops()
