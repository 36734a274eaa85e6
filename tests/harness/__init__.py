"""What runs the tests: launching ranks, recording what each saw, ending a world that failed."""
