"""Reading the log: by windows, frame by frame, with a verdict on everything that is not a frame; recovery."""
