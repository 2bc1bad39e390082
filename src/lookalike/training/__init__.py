"""Training: settings, encoders, the loop, runs and comparisons."""
