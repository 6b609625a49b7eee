"""The console: a page on the metrics port that shows queues and streams, and puts dead jobs back."""
