"""Graphs over rows: nearest neighbours, the weights of their edges, and Laplacians."""
