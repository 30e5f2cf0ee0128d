"""A trained model leaves Python: traced, folded, written as torch.export or ONNX, and checked or removed."""

from .run import Request, export_model
from .trace import NotExported
from .verify import WrongFile

__all__ = ['NotExported', 'Request', 'WrongFile', 'export_model']
