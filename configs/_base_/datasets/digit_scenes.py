# Scenes of 3 to 7 handwritten digits.
digits_root = '{{$VITPLUG_DIGITS:data/digits}}'
data_help = dict(command=f'python tools/dataset_converters/make_digit_scenes.py --out {digits_root}')
metainfo = dict(
    classes=tuple('0123456789'),
    palette=[
        (230, 60, 50), (250, 150, 30), (250, 220, 60), (150, 210, 70), (40, 150, 80),
        (60, 200, 210), (60, 110, 230), (140, 80, 210), (240, 120, 200), (160, 110, 70),
    ],
)  # fmt: skip
# Colours carry no information about a digit: convert to grey with full contrast.
to_grey = [
    dict(type='LoadImageFromFile'),
    dict(type='mmpretrain.NumpyToPIL', to_rgb=True),
    dict(type='mmpretrain.torchvision/Grayscale'),
    dict(type='mmpretrain.torchvision/RandomAutocontrast', p=1.0),
    dict(type='mmpretrain.PILToNumpy'),
]
