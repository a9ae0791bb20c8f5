"""The checks that students run in their notebooks: one module per exercise, called like it without its number."""
