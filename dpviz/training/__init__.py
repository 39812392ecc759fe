"""Training: one loop, and tables of everything that can be exchanged in it. Importing this package imports no torch."""
