"""The sandbox of processes that run plans: files by Landlock, system calls by seccomp, resource limits."""
