"""The device's parent process: session, transfers, enrolment; imports neither torch nor numpy."""
