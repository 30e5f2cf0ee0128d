"""Looking at what a trained model does."""
