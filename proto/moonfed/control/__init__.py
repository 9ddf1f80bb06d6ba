"""Records of what operators see of a coordinator, with their messages and their JSON documents."""
