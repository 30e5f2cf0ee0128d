"""A trained model leaves Python: traced, folded, written as torch.export or ONNX, and checked or removed."""
