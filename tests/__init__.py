"""The tests, which three processes run on two cores. The programs that they start compute with one thread each."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported: more threads would wait for each other
