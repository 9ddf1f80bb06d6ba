"""Where a device's own samples come from: a folder of images, an .npz file, or a function of yours."""
