"""Memory and time of a training on GPUs that are not there: a model, not a measurement."""
