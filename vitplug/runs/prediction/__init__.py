"""From a trained model to pictures and JSON, for the three tasks, on the libraries' inferencers."""

from .predictor import Predictor

__all__ = ['Predictor']
