"""The laboratory: measures of models, ablations, pages, export; everything that is no training."""
