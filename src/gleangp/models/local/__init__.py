"""The model of blocks and a basis: learning its parameters, its posterior, and what a fitted model does."""
