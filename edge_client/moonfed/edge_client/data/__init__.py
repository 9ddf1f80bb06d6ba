"""Sources of the device's samples: a folder of images, an .npz file, or a user's function."""
