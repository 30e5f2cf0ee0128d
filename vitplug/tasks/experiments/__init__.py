"""Experiments on one's own data: how the data lies, and the hosts that replace the libraries' backbones."""
