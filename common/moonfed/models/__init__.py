"""Models after training: sessions, predictions, repositories and manifests of releases."""
