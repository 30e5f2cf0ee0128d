# The classifier reads a class token in place of all tokens.
# python tools/ablate.py docs/evidence/cb/class_token.py --out work_dirs/evidence/cb/class_token
base = 'settings/class_token.py'
plugs = ['none', 'cb']
seeds = [10, 11, 12]
metric = 'accuracy/top1'
