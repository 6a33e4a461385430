"""Tasks with kernel parameters of their own under a learnt prior (Zhang & Yeung 2009)."""
