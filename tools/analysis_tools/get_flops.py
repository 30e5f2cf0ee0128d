"""Count parameters and MACs: python tools/analysis_tools/get_flops.py CONFIG [--shape HEIGHT WIDTH] [--batch N]"""

from vitplug.analysis.cli import get_flops

if __name__ == '__main__':
    get_flops()
