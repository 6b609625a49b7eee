"""`tidelog report`: the analyses of a store, drawn into one HTML file."""
