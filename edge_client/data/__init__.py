"""Where a device finds its samples: image folders, .npz files, a callable of the user."""
