"""Graphs over rows: nearest neighbours and the weights of their edges."""
