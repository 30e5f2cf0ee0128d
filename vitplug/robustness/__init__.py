"""How robust trained models are: changed images, attacks and further test sets, for the three tasks."""
