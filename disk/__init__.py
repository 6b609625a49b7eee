"""The file operations that tidelog uses: a real implementation, and a simulated one that can lose power."""
