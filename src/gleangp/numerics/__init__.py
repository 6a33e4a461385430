"""Numbers: linear algebra, special functions, the one search, threads and memory."""
