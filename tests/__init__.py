"""The tests, run by two processes on two cores. The programs they start have one thread of arithmetic each."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported: more threads would wait for each other
