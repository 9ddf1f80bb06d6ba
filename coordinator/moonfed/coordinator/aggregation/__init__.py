"""From a closed round's updates to the next global state: pure arithmetic on files, without gRPC, database or clock."""
