"""Count parameters and MACs: python tools/analysis_tools/get_flops.py CONFIG [--shape HEIGHT WIDTH] [--batch N]"""

from vitplug import chatter, threads

if __name__ == '__main__':
    threads.configure()  # before torch is loaded
    chatter.filter_lines()

    from vitplug.analysis.config_commands import get_flops

    get_flops()
