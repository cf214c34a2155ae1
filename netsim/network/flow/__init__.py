"""The flow engine: fluid transfers with max-min fair paces over the links that a communicator loads."""
