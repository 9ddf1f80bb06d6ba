"""The devices of a coordinator: sessions, eligibility, liveness and notifications."""
