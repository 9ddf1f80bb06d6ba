"""The device's parent process: session, transfers, enrolment, training window; imports neither torch nor numpy."""
