"""The page of layers and classifiers that plans support, made by trying each."""
