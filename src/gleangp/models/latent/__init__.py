"""Classifiers of several tasks through a shared latent space (Urtasun, Quattoni & Darrell 2007)."""
