"""The certificate authority, and enrolment of devices."""
